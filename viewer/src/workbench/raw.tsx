/** The tab Raw: the events of the step, with header, hashes and body. */

import { useEffect, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { timeText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import type { EventShape, Json } from "../shapes";
import { Icon } from "../parts/icons";
import { JsonView } from "../parts/json";
import { memo } from "../parts/memo";
import { Empty, Erased, Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";

export function RawPanel() {
  const { model, source } = usePage();
  const place = model.cursor.value;
  const step = model.step.value;
  const seqs = step && place && step.log === place.log && step.events.includes(place.seq) ? step.events : place ? [place.seq] : [];
  const seq = place?.seq ?? 0;
  const shown = useAnswer(place ? source.events(place.log, seq, 1) : null, model.isGliding.value ? 70 : 0);
  return (
    <div class="panel-scroll scroll" tabIndex={0}>
      <nav class="event-seqs" aria-label="Events of the step">
        <span class="faint">{seqs.length === 1 ? "event" : "events"}</span>
        {seqs.slice(0, 60).map((each) => (
          <a
            key={each}
            class="mono"
            aria-current={each === seq}
            href={hrefOf(sessionRoute(model.branch.value?.short ?? place!.log, each, { tab: "raw" }))}
          >
            {each}
          </a>
        ))}
        {seqs.length > 60 && <span class="faint">{`and ${seqs.length - 60} more`}</span>}
      </nav>
      <Shows shown={shown}>
        {(answer) => {
          const event = answer.events[0];
          return event ? <EventView event={event} /> : <Empty>There is no event {seq} in this log.</Empty>;
        }}
      </Shows>
    </div>
  );
}

const EventView = memo(function EventView({ event }: { event: EventShape }) {
  const text = () => JSON.stringify(event, null, 2);
  const links: [string, readonly string[]][] = [["parents", event.parents], ["causes", event.causes]];
  return (
    <article class="detail">
      <header class="detail-head raw-head">
        <h2>
          <b><Pieces text={event.kind} /></b>
        </h2>
        <span class="raw-acts">
          <CopyButton text={text} />
          <DownloadButton text={text} name={`${event.session.slice(0, 8)}-${event.seq}.json`} />
        </span>
      </header>
      <dl class="pairs">
        <dt>id</dt>
        <dd class="mono">{event.id}</dd>
        <dt>time</dt>
        <dd>{timeText(event.time)} <span class="faint mono">{event.time}</span></dd>
        {(["actor", "behalf", "origin", "run", "call"] as const).map(
          (name) => event[name] && [<dt key={name}>{name}</dt>, <dd key={`${name}-value`}><Pieces text={String(event[name])} /></dd>],
        )}
        {links.map(
          ([name, ids]) =>
            ids.length > 0 && [
              <dt key={name}>{name}</dt>,
              <dd key={`${name}-ids`} class="mono">
                {ids.slice(0, 20).map((id) => <div key={id}><Line text={id} /></div>)}
                {ids.length > 20 && <span class="faint">{`and ${ids.length - 20} more`}</span>}
              </dd>,
            ],
        )}
      </dl>
      <section class="block">
        <h3 class="label">Body</h3>
        {event.body === null ? <BodyGone event={event} /> : <JsonView value={event.body as Json} isBare />}
      </section>
    </article>
  );
});

function BodyGone({ event }: { event: EventShape }) {
  if (event.state === "whole") return <p class="faint">empty</p>;
  const words = event.state === "erased" ? "The body of this event was erased. Its header stays." : "The body cannot be read.";
  return (
    <Erased>
      {words} <Pieces text={event.why} />
    </Erased>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: () => string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [isCopied]);
  return (
    <button
      type="button"
      class="button plain"
      onClick={() => void navigator.clipboard?.writeText(text()).then(() => setCopied(true))}
    >
      <Icon name={isCopied ? "passed" : "copy"} /> {isCopied ? "Copied" : label}
    </button>
  );
}

function DownloadButton({ text, name }: { text: () => string; name: string }) {
  return (
    <button
      type="button"
      class="button plain"
      onClick={() => {
        const address = URL.createObjectURL(new Blob([text()], { type: "application/json" }));
        const link = document.createElement("a");
        link.href = address;
        link.download = name;
        link.click();
        setTimeout(() => URL.revokeObjectURL(address), 10_000);
      }}
    >
      <Icon name="download" /> Download
    </button>
  );
}
