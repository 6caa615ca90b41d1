"""`dossier.html`: one document without scripts, which loads nothing and can be printed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from plait.dossier.anchors import Anchors
from plait.dossier.markup import cost_text, count_text, line, text, time_text, tokens_text
from plait.dossier.pieces import branches_text, names_text
from plait.dossier.sections import Section, Sections
from plait.dossier.shapes import Dossier, DossierNotice, DossierVerdict
from plait.dossier.step_markup import StepMarkup
from plait.ids import short

GENERATOR = "plait dossier"
PRINT_MAX = 300  # steps up to which a print shows all that is folded
LONG = 5_000  # steps beyond which most of them are one line
_STYLE = Path(__file__).with_name("dossier.css")
_BAD = ("tampered", "erased", "failed", "killed", "partial")


def dossier_page(dossier: Dossier, *, has_run: bool) -> str:
    """Return the page. `has_run`: the page of the viewer stands beside it."""
    anchors = Anchors(dossier)
    style = _STYLE.read_text("utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    is_small = len(dossier.steps) <= PRINT_MAX
    sections = Sections(dossier, anchors).all()
    steps = StepMarkup(dossier, anchors, long=len(dossier.steps) > LONG)
    sections.append(Section("steps", "Every step", [*_steps(dossier, steps)]))
    sections.append(Section("check", "Verification", [*_check(dossier, anchors)]))
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f'<meta name="generator" content="{GENERATOR}">',
        f"<title>{line(dossier.title, 90)} · dossier</title>",
        f"<style>{style}</style>",
        "</head>",
        f'<body class="{"small" if is_small else "large"}">',
        *_head(dossier, anchors, has_run=has_run),
        *_contents(sections),
        "<main>",
        *_short(dossier, anchors),
        *[part for number, each in enumerate(sections, 1) for part in _section(number, each)],
        "</main>",
        f"<footer>Made by plait {text(dossier.plait)} on {time_text(dossier.made)}.</footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)


def _head(dossier: Dossier, anchors: Anchors, *, has_run: bool) -> Iterator[str]:
    session = dossier.session
    place = dossier.place
    yield "<header>"
    yield (
        f'<p class="over">Dossier of session <code>{text(short(place.log))}</code> at event '
        f"{place.seq:,}</p>"
    )
    yield f"<h1>{line(dossier.title, 160)}</h1>"
    facts = [f'<b class="status {text(dossier.status)}">{text(dossier.status)}</b>']
    if dossier.asked:
        first = dossier.asked[0]
        facts.append(f"asked by {text(first.actor)} on {time_text(first.time)}")
    if session is not None and session.project:
        facts.append(f"project {line(session.project, 60)}")
    if session is not None:
        facts += [f"{line(name, 40)}: {line(value, 60)}" for name, value in session.tags.items()]
    yield f'<p class="sub">{" · ".join(facts)}</p>'
    yield _seal(dossier)
    for notice in dossier.notices:
        yield _notice(notice, anchors)
    beside = [f"<code>dossier.json</code> beside this page has the same{_record_words(dossier)}"]
    if has_run:
        beside.insert(0, '<a href="run.html">run.html</a> is the run to walk through, step by step')
    yield f'<p class="beside">{"; ".join(beside)}.</p>'
    yield "</header>"


def _record_words(dossier: Dossier) -> str:
    """Return what a dossier has of the record."""
    record = dossier.check.record
    if not record.data:
        return "; the record is too long for it, or damaged, and stands in the store alone"
    if not record.is_whole:
        return ", and the record without the largest contents"
    return ", and the record itself"


def _seal(dossier: Dossier) -> str:
    verify = dossier.check.verify
    head = f"head <code>{text(dossier.check.head[:16])}</code>"
    if verify is None:
        return f'<p class="seal bad">✗ <a href="#check">Not verified</a>, {head}</p>'
    events = count_text(verify.events, "event")
    if verify.ok:
        return f'<p class="seal good">✓ <a href="#check">Verified</a>: {events}, {head}</p>'
    faults = count_text(len(verify.faults), "fault")
    return f'<p class="seal bad">✗ <a href="#check">Verification found {faults}</a>, {head}</p>'


def _notice(notice: DossierNotice, anchors: Anchors) -> str:
    kind = "bad" if notice.kind in _BAD else "warn"
    title = {
        "tampered": "Tampered with",
        "erased": "Erased in part",
        "partial": "Not whole",
        "past": "An earlier place",
        "long": "Very long",
    }.get(notice.kind, notice.kind.capitalize())
    link = f" {anchors.link(notice.at)}" if notice.at is not None else ""
    return f'<p class="notice {kind}" role="note"><b>{title}.</b> {text(notice.text)}{link}</p>'


def _contents(sections: list[Section]) -> Iterator[str]:
    yield '<nav aria-label="Contents"><ol>'
    yield '<li class="first"><a href="#short">In short</a></li>'
    for each in sections:
        yield f'<li><a href="#{each.anchor}">{text(each.title)}</a></li>'
    yield "</ol></nav>"


def _section(number: int, section: Section) -> Iterator[str]:
    yield f'<section id="{section.anchor}" aria-labelledby="{section.anchor}-h">'
    yield f'<h2 id="{section.anchor}-h"><span>{number}</span> {text(section.title)}</h2>'
    yield from section.parts
    yield "</section>"


# ── in short ─────────────────────────────────────────────────────────────────────────────────


def _short(d: Dossier, anchors: Anchors) -> Iterator[str]:
    """Yield the answers to a stranger's first questions, each with a link to its section."""
    rows = [
        ("asked", "Asked", _short_asked(d)),
        ("steps", "Done", _short_done(d)),
        ("verdicts", "Proved by", _short_verdicts(d, anchors)),
        ("rejected", "Rejected", _short_rejected(d, anchors)),
        ("patch", "Changed", _short_changed(d)),
        ("usage", "Cost", _short_cost(d)),
        ("memory", "Remembered", _short_memory(d)),
        ("effects", "Not undone", _short_effects(d, anchors)),
    ]
    yield '<section id="short" aria-labelledby="short-h"><h2 id="short-h">In short</h2>'
    yield '<dl class="short">'
    for anchor, name, words in rows:
        yield f'<div><dt><a href="#{anchor}">{name}</a></dt><dd>{words}</dd></div>'
    yield "</dl></section>"


def _short_asked(d: Dossier) -> str:
    asked = list(d.asked)
    if not asked:
        return "nothing is on record"
    more = f" <small>and {len(asked) - 1:,} more</small>" if len(asked) > 1 else ""
    return f"{line(asked[0].text, 300)}{more}"


def _short_done(d: Dossier) -> str:
    told = [f"{count_text(len(d.steps), 'step')} in {branches_text(d)}"]
    if d.usage is not None:
        told.append(count_text(d.usage.total.model_calls, "model call"))
        without = " (what-ifs not counted)" if d.what_ifs else ""
        told.append(f"{count_text(d.usage.total.tool_calls, 'tool call')}{without}")
    told += [f"{count_text(len(d.failures), 'failure')}"] if d.failures else []
    kills = sum([each.sort == "kill" for each in d.failures])
    told += [f"killed {kills}×, and taken up again"] if kills else []
    return ", ".join(told)


def _short_verdicts(d: Dossier, anchors: Anchors) -> str:
    standing = [each for each in d.verdicts if each.stands]
    if not standing:
        return "no verdict stands"
    told = [
        f'<b class="{"good" if each.passed else "bad"}">{"✓" if each.passed else "✗"} '
        f"{line(each.name, 60)} {'passed' if each.passed else 'failed'}</b>"
        f"{_short_since(each)} {anchors.link(each.at)}"
        for each in standing[:4]
    ]
    more = f" and {len(standing) - 4:,} more" if len(standing) > 4 else ""
    return ", ".join(told) + more


def _short_since(each: DossierVerdict) -> str:
    return f" before {names_text(each.changed_since)} changed" if each.changed_since else ""


def _short_rejected(d: Dossier, anchors: Anchors) -> str:
    if not d.rejected:
        return "nothing"
    first = d.rejected[0]
    why = f": {line(first.why, 160)}" if first.why else ""
    more = f" <small>and {len(d.rejected) - 1:,} more</small>" if len(d.rejected) > 1 else ""
    return f"{line(first.what, 100)}{why} {anchors.link(first.at)}{more}"


def _short_changed(d: Dossier) -> str:
    if d.patch is None:
        return "it has no files"
    files = d.patch.files.files
    if not files:
        return "no file"
    names = ", ".join([f"<code>{line(each.path, 60)}</code>" for each in files[:4]])
    more = f" and {len(files) - 4:,} more" if len(files) > 4 else ""
    return f"{names}{more}, <ins>+{d.patch.added}</ins> <del>−{d.patch.removed}</del>"


def _short_cost(d: Dossier) -> str:
    if d.usage is None:
        return "it could not be read"
    total = d.usage.total
    if not total.model_calls:
        return "no model was asked"
    return f"{cost_text(total)}, {tokens_text(total)}"


def _short_memory(d: Dossier) -> str:
    given = sum([len(each.memories) for each in d.memory_read])
    written = sum([each.kind == "MemoryProposed" for each in d.memory_written])
    if not given and not written:
        return "nothing was read or written"
    return f"{count_text(given, 'memory', 'memories')} read, {written:,} written"


def _short_effects(d: Dossier, anchors: Anchors) -> str:
    effects = [each for each in d.effects if each.state != "compensated"]
    if not effects:
        return "nothing: no tool reached beyond the files"
    told = [
        f"{line(each.tool, 40)} ({text(each.state)}) {anchors.link(each.at)}"
        for each in effects[:4]
    ]
    more = f" and {len(effects) - 4:,} more" if len(effects) > 4 else ""
    return ", ".join(told) + more


# ── steps and verification ───────────────────────────────────────────────────────────────────


def _steps(dossier: Dossier, markup: StepMarkup) -> Iterator[str]:
    count = count_text(len(dossier.steps), "step")
    cut = f" Texts are cut at {dossier.texts_cut_at:,} characters." if dossier.texts_cut_at else ""
    yield (
        f"<p>{count}, in the order of the graph. The number is the event; a line opens to its "
        f"arguments, results and differences.{cut}</p>"
    )
    if dossier.is_brief:
        yield (
            "<p>There are so many that calls and replies which left nothing behind are told by "
            "their line: run.html has all of them.</p>"
        )
    yield from markup.all()


def _check(dossier: Dossier, anchors: Anchors) -> Iterator[str]:
    check, record = dossier.check, dossier.check.record
    yield (
        f"<p>The head of the session at event {dossier.place.seq:,} is</p>"
        f'<p class="head"><code>{text(check.head)}</code></p>'
        "<p>It commits to every event before it, of this session and of all that was merged into "
        "it. Whoever has this line from elsewhere can tell whether anything was changed.</p>"
    )
    verify = check.verify
    if verify is not None:
        result = "nothing is wrong" if verify.ok else count_text(len(verify.faults), "fault")
        events, own = count_text(verify.events, "event"), record.events
        if verify.events > own:
            events += f" ({own:,} of these branches, {verify.events - own:,} of their inboxes and"
            events += " of sessions they rest on)"
        yield f"<p>{events} were checked when this was made: {result}.</p>"
        for fault in verify.faults[:20]:
            where = f"{short(fault.session)}@{fault.seq}" if fault.session else "the store"
            yield f'<p class="notice bad"><b>{text(where)}</b> {text(fault.what)}</p>'
        unchecked = [f"<li>{text(each.what)}: {text(each.why)}</li>" for each in verify.unchecked]
        yield f"<p>Not checked:</p><ul>{''.join(unchecked)}</ul>"
    if dossier.missing:
        missing = [f"<li>{text(each)}</li>" for each in dossier.missing]
        yield f"<p>Not read:</p><ul>{''.join(missing)}</ul>"
    yield "<h3>Check it with Plait</h3>"
    yield f"<pre>plait verify {text(short(dossier.place.log))}</pre>"
    yield "<h3>Check it without us</h3>"
    yield from _without_us(dossier)
    yield "<h3>The heads of all branches</h3>"
    rows = [
        f"<div><dt>{line(anchors.name(each.log), 60)}@{each.tip}</dt>"
        f"<dd><code>{text(each.head)}</code></dd></div>"
        for each in record.heads[:60]
    ]
    yield f'<dl class="p">{"".join(rows)}</dl>'


def _without_us(dossier: Dossier) -> Iterator[str]:
    record = dossier.check.record
    if not record.data:
        yield (
            f"<p>The record has {record.events:,} events, and is not in <code>dossier.json</code>: "
            "the store has it. An event is a header and a body; the id of an event is SHA-256 of "
            "<code>plait/event/1</code> and the bytes of its header, which names the events before "
            "it, and SHA-256 of <code>plait/body/1</code>, a salt and the bytes of its body.</p>"
        )
        return
    gone = record.events - record.bodies
    erased = f" The content of {gone:,} of them is not there." if gone else ""
    yield (
        f"<p><code>dossier.json</code> has the bytes of all {record.events:,} events of these "
        f"branches that were hashed.{erased} The id of an event is SHA-256 of "
        "<code>plait/event/1</code> and its header; the header names the events before it, and "
        "SHA-256 of <code>plait/body/1</code>, a salt and the content. This program computes "
        "them all again:</p>"
    )
    yield f'<pre class="program">{text(dossier.check.program)}</pre>'
