/** A run that this page started: a line that says how it stands, and where to look. */

import { useState } from "preact/hooks";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { Icon } from "../parts/icons";
import { Pieces } from "../parts/text";
import type { NewRun, RunShape } from "../shapes";
import { Field, Refused, useActing } from "./acting";
import { noteRun, runWords, toldRuns } from "./live";

const END_WORDS: Readonly<Record<string, string>> = {
  finished: "finished", waiting: "waits for somebody", failed: "failed", cancelled: "was cancelled", interrupted: "was interrupted",
};

export function runStatus(run: RunShape): string {
  if (run.state === "running") return "running";
  return run.status === "" ? "finished" : run.status;
}

/** How a run stands. It follows the feed. */
export function RunLine({ run: given }: { run: RunShape }) {
  const { source } = usePage();
  const run = toldRuns.value.get(given.id) ?? given;
  const words = runWords.value.get(run.id) ?? "";
  const stop = useActing<RunShape>();
  const where = run.branch ?? run.session;
  return (
    <div class="run-line">
      <p class="run-line-head" role="status">
        <span class={`status is-${runStatus(run)}`}>
          {run.state === "running" ? (run.verb === "whatif" ? "the branch runs" : "the run goes on") : `the run ${END_WORDS[run.status] ?? "ended"}`}
        </span>
        <a class="link" href={hrefOf(sessionRoute(where))}>Open it</a>
        {run.verb === "whatif" && run.branch && (
          <a class="link" href={hrefOf({ screen: "compare", left: run.session, right: run.branch })}>Side by side</a>
        )}
        {run.state === "running" && (
          <button type="button" class="link" disabled={stop.isBusy} onClick={() => void stop.start(() => source.post<RunShape>(`/api/runs/${run.id}/stop`, {}))}>
            Interrupt
          </button>
        )}
      </p>
      {run.error && <p class="bad"><Pieces text={run.error.message} /></p>}
      {!run.error && (words || run.text) && (
        <p class="run-line-words quiet"><Pieces text={(run.state === "ended" && run.text ? run.text : words).slice(-600)} /></p>
      )}
      {stop.failure && <Refused failure={stop.failure} />}
    </div>
  );
}

interface ResumeProps {
  readonly session: string;
  readonly words?: string;
  readonly isFirst?: boolean;
}

/** The button that resumes a session in a process of its own; a field for the program if it needs one. */
export function Resume({ session, words = "Resume the run", isFirst = true }: ResumeProps) {
  const { source } = usePage();
  const act = useActing<RunShape>();
  const [program, setProgram] = useState("");
  const [accept, setAccept] = useState("");
  const run = act.done ? (toldRuns.value.get(act.done.id) ?? act.done) : null;
  const error = run?.error?.error ?? act.failure?.kind ?? "";
  const needsProgram = error === "NeedsWorkflow" || program !== "";
  const message = run?.error?.message ?? act.failure?.message ?? "";
  const needsAccept = message.includes("--accept") || accept !== "";
  const start = () =>
    act.start(async () => {
      const body: NewRun = { verb: "resume", session, ...(program ? { program } : {}), ...(accept ? { accept } : {}) };
      const made = await source.post<RunShape>("/api/runs", { ...body });
      noteRun(made);
      return made;
    });
  if (source.store().value?.can_run === false)
    return <p class="faint">No runs are started from here. Type: <code>{`plait resume ${session}`}</code></p>;
  return (
    <div class="resume">
      {run && <RunLine run={run} />}
      {act.failure && <Refused failure={act.failure} />}
      {needsProgram && (
        <Field label="Program" value={program} onInput={setProgram} placeholder="FILE.py:NAME" isCode hint="the file and the workflow in it, seen from the server's folder" />
      )}
      {needsAccept && (
        <Field label="The program has changed. Why may it go on?" value={accept} onInput={setAccept} />
      )}
      {(!run || run.state === "ended") && (!run || error) && (
        <div class="acts">
          <button type="button" class={`button big ${isFirst ? "first" : ""}`} disabled={act.isBusy} onClick={() => void start()}>
            <Icon name="play" />
            {words}
          </button>
          {!run && <span class="quiet">Until then the run waits.</span>}
        </div>
      )}
    </div>
  );
}
