/** Acts on a session at a place: each asks in a dialog, with the exact thing in the question. */

import { useEffect, useState } from "preact/hooks";
import { usePage } from "../base/page";
import { go, placeText, sessionRoute } from "../base/router";
import { Dialog } from "../parts/dialog";
import { Icon, type IconName } from "../parts/icons";
import { Line, Pieces } from "../parts/text";
import type { ActShape } from "../shapes";
import { Field, Refused, useActing, useReadOnly } from "./acting";
import { lookAhead, type Ahead } from "./ahead";
import { actShown, type ActName } from "./opened";
import { Resume } from "./run_line";

interface ActWords {
  readonly icon: IconName;
  /** As a menu has it. */
  readonly name: string;
  readonly title: (place: string) => string;
  readonly button: string;
  readonly hint: string;
  readonly field?: string;
  readonly isLong?: boolean;
  readonly isNeeded?: boolean;
  readonly isDanger?: boolean;
}

export const ACTS: Readonly<Record<ActName, ActWords>> = {
  send: { icon: "person", name: "Send a message", title: (at) => `Send a message to ${at}`, button: "Send", hint: "The run that is open, or the next one, hears it.", field: "Message", isLong: true, isNeeded: true },
  note: { icon: "note", name: "Add a note", title: (at) => `Note on ${at}`, button: "Add the note", hint: "A finding, on record. No model is asked.", field: "Note", isLong: true, isNeeded: true },
  fork: { icon: "fork", name: "Fork here", title: (at) => `Fork ${at}`, button: "Fork", hint: "A branch that begins with everything up to this place. The session is not touched.", field: "Name of the branch (may be empty)" },
  rewind: { icon: "rewind", name: "Rewind to here", title: (at) => `Rewind to ${at}`, button: "Rewind", hint: "The session goes on from its story, facts and files at this place. What came after stays on record.", field: "Why", isDanger: true },
  pause: { icon: "pause", name: "Pause", title: (at) => `Pause ${at}`, button: "Pause", hint: "It rests after its next step, until it is unpaused.", field: "Why" },
  unpause: { icon: "play", name: "Unpause", title: (at) => `Unpause ${at}`, button: "Unpause", hint: "It can be resumed again.", field: "Why" },
  cancel: { icon: "failed", name: "Cancel the run", title: (at) => `Cancel the run of ${at}`, button: "Cancel the run", hint: "It ends before its next effect, for good.", field: "Why", isDanger: true },
  close: { icon: "flag", name: "Close the session", title: (at) => `Close ${at}`, button: "Close it", hint: "Nothing is added to it any more. It can be forked.", field: "Why", isDanger: true },
};

const AT_PLACE: ReadonlySet<ActName> = new Set(["fork", "rewind"]);

export function ActDialog() {
  const wanted = actShown.value;
  if (!wanted) return null;
  return <ActForm key={`${wanted.act} ${wanted.session}@${wanted.seq}`} />;
}

function ActForm() {
  const { source } = usePage();
  const { act: name, session, seq, words: given = "" } = actShown.peek()!;
  const words = ACTS[name];
  const readOnly = useReadOnly();
  const place = AT_PLACE.has(name) ? placeText(session, seq) : session;
  const [text, setText] = useState("");
  const [said, setSaid] = useState(given);
  const act = useActing<ActShape>();
  const close = () => (actShown.value = null);
  const body = () => {
    if (name === "send" || name === "note") return { text };
    if (name === "fork") return { label: text.trim() || null };
    return { reason: text };
  };
  const start = async () => {
    const done = await act.start(async () => {
      const made = await source.act(place, name, body());
      if (name !== "fork" || !said.trim()) return made;
      return source.act(made.short, "say", { text: said });
    });
    if (!done) return;
    if (name === "fork") {
      close();
      go(sessionRoute(done.short));
    } else if (!done.resume && done.not_undone.length === 0) {
      close();
    }
  };
  return (
    <Dialog title={words.title(place)} class="act-dialog" onClose={close}>
      <form
        class="act-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!words.isNeeded || text.trim()) void start();
        }}
      >
        <p class="quiet">{words.hint}</p>
        {name === "rewind" && !act.done && <NotUndone session={session} seq={seq} />}
        {!act.done && words.field && <Field label={words.field} value={text} onInput={setText} {...(words.isLong ? { rows: 4 } : {})} />}
        {!act.done && name === "fork" && <Field label="Say in it (may be empty)" value={said} onInput={setSaid} rows={2} />}
        {act.failure && <Refused failure={act.failure} />}
        {act.done && act.done.not_undone.length > 0 && (
          <div>
            <p class="warn">It went back. These effects happened, and are not undone:</p>
            <ul>{act.done.not_undone.map((each) => <li key={each.event}><b class="mono"><Pieces text={each.tool ?? each.says} /></b> <Line text={JSON.stringify(each.arguments) ?? ""} class="mono quiet" /></li>)}</ul>
          </div>
        )}
        {act.done?.resume && (
          <>
            <p><Icon name="passed" class="good" /> It is on record, and the run waits.</p>
            <Resume session={act.done.resume} />
          </>
        )}
        <div class="acts">
          {!act.done && (readOnly ? <p class="faint">{readOnly}</p> : (
            <button type="submit" class={`button big ${words.isDanger ? "danger" : "first"}`} disabled={act.isBusy || (words.isNeeded && !text.trim())}>{words.button}</button>
          ))}
          <button type="button" class="button plain big" onClick={close}>{act.done ? "Close" : "Back"}</button>
        </div>
      </form>
    </Dialog>
  );
}

/** The effects behind a place that a rewind leaves as they are. */
function NotUndone({ session, seq }: { session: string; seq: number | null }) {
  const { source, model } = usePage();
  const [ahead, setAhead] = useState<Ahead | null>(null);
  useEffect(() => {
    let isOver = false;
    void source
      .session(placeText(session, seq))
      .get()
      .then((at) => lookAhead(source, model.family.peek(), at.id, at.place))
      .then((found) => !isOver && setAhead(found), () => undefined);
    return () => {
      isOver = true;
    };
  }, [session, seq]);
  if (!ahead) return null;
  const outward = ahead.calls.filter((call) => call.isOutward);
  return outward.length === 0 ? (
    <p class="quiet">Nothing that came after reached beyond the files.</p>
  ) : (
    <div>
      <p class="warn">It does not undo what reached beyond the files:</p>
      <ul class="act-effects">
        {outward.slice(0, 30).map((call) => (
          <li key={`${call.log}@${call.seq}`}>
            <span class="mono faint">{`@${call.seq}`}</span> <b class="mono"><Pieces text={call.tool} /></b> <Line text={JSON.stringify(call.arguments) ?? ""} class="mono quiet" />
          </li>
        ))}
      </ul>
    </div>
  );
}

const LOOKS = [
  ["coin", "Cost of the session", "cost"],
  ["memory", "Memory of the session", "memory"],
  ["passed", "Verify the session", "verify"],
] as const satisfies readonly (readonly [IconName, string, "cost" | "memory" | "verify"])[];

/** A button with a menu of the acts at the place of the cursor. */
export function ActMenu() {
  const { model, source } = usePage();
  const place = model.cursor.value;
  const branch = model.branch.value;
  if (!place || !branch || source.isFile) return null;
  const names: ActName[] = ["send", "note", "fork"];
  if (place.seq < branch.tip) names.push("rewind");
  names.push(branch.status === "paused" ? "unpause" : "pause", "cancel", "close");
  const id = "act-menu";
  return (
    <>
      <button type="button" class="button" popovertarget={id} aria-haspopup="menu">
        <span class="bar-word">Act</span> <Icon name="down" />
      </button>
      <div id={id} popover="auto" class="menu act-menu" role="menu">
        {names.map((name) => (
          <button
            key={name}
            type="button"
            role="menuitem"
            onClick={() => {
              document.getElementById(id)?.hidePopover();
              actShown.value = { act: name, session: branch.short, seq: place.seq };
            }}
          >
            <Icon name={ACTS[name].icon} /> {ACTS[name].name}
          </button>
        ))}
        <hr />
        {LOOKS.map(([icon, words, screen]) => (
          <button
            key={screen}
            type="button"
            role="menuitem"
            onClick={() => {
              document.getElementById(id)?.hidePopover();
              go({ screen, session: screen === "cost" ? (model.family.peek()?.branches[0]?.short ?? branch.short) : branch.short });
            }}
          >
            <Icon name={icon} /> {words}
          </button>
        ))}
      </div>
    </>
  );
}
