"""The sections of a dossier as HTML, in the order in which a stranger asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from plait.dossier.anchors import Anchors
from plait.dossier.markup import (
    actor_text,
    cost_text,
    count_text,
    json_line,
    line,
    object_of,
    text,
    time_text,
    took_text,
)
from plait.dossier.picture import color_class, picture_rows
from plait.dossier.pieces import (
    ROWS_MAX,
    branches_text,
    code,
    folded,
    folded_list,
    hash_code,
    limit_text,
    names_text,
    nothing,
    pairs,
    ref_of_event,
    spent_text,
    table,
)
from plait.dossier.shapes import (
    CallPath,
    Consent,
    Dossier,
    DossierRun,
    EvidenceLine,
    GivenMemory,
    MemoryOrigin,
)
from plait.dossier.step_markup import diff_markup
from plait.event import Json

PICTURE_MAX = 90  # steps that the picture shows one by one
PATCH_LINES = 1_500


class Section(NamedTuple):
    """One section: an anchor, a title, and its parts."""

    anchor: str
    title: str
    parts: Sequence[str]


class Sections:
    """Writes the sections of one dossier, but for its steps."""

    def __init__(self, dossier: Dossier, anchors: Anchors) -> None:
        self._d, self._to = dossier, anchors

    def all(self) -> list[Section]:
        return [
            Section("asked", "What was asked", [*self.asked()]),
            Section("result", "What came of it", [*self.result()]),
            Section("patch", "The accepted patch", [*self.patch()]),
            Section("verdicts", "What proves it", [*self.verdicts()]),
            Section("rejected", "What was rejected, and why", [*self.rejected()]),
            Section("graph", "The session graph", [*self.graph()]),
            Section("workflow", "The workflow", [*self.workflow()]),
            Section("environment", "Environment and versions", [*self.environment()]),
            Section("people", "Approvals and answers, word for word", [*self.people()]),
            Section("memory", "Memory read and written", [*self.memory()]),
            Section("usage", "Usage, cost and budget", [*self.usage()]),
            Section("failures", "What failed, and what was done about it", [*self.failures()]),
            Section("effects", "Effects that are not undone", [*self.effects()]),
        ]

    # ── asked and answered ───────────────────────────────────────────────────────────────────

    def asked(self) -> Iterator[str]:
        if not self._d.asked:
            yield nothing("No message of a person or a program is on record.")
        rows = [
            f"<blockquote><p>{text(each.text[:4000])}</p><footer>{text(each.actor)}, "
            f"{time_text(each.time)} {self._to.link(each.at)}</footer></blockquote>"
            for each in self._d.asked
        ]
        yield from folded(rows, 4, "messages")

    def result(self) -> Iterator[str]:
        if self._d.answer:
            answer = text(self._d.answer[:4000])
            yield f"<blockquote><p>{answer}</p><footer>the last words</footer></blockquote>"
        if self._d.facts:
            rows = [
                f"<tr><td>{text(each.kind)}</td><th scope=row>{line(each.key, 80)}</th>"
                f"<td>{self._value(each.value)}{self._because(each.reason)}</td>"
                f"<td>{self._to.link(each.at)}</td></tr>"
                for each in self._d.facts
            ]
            yield from table(("", "key", "value", "step"), rows, "facts and decisions")
        if self._d.open_work:
            rows = [
                f"<tr><td>{text(each.kind)}</td><th scope=row>{line(each.key, 80)}</th>"
                f"<td>{line(each.what)}</td><td>{self._to.link(each.at)}</td></tr>"
                for each in self._d.open_work
            ]
            yield "<h3>Still to do</h3>"
            yield from table(("", "key", "what", "step"), rows, "open work")
        if not (self._d.answer or self._d.facts or self._d.open_work):
            yield nothing("No answer, fact or decision is on record.")

    def _value(self, value: Json) -> str:
        return f"<code>{line(value if isinstance(value, str) else json_line(value))}</code>"

    def _because(self, reason: str) -> str:
        return f'<br><span class="q">because {line(reason)}</span>' if reason else ""

    def patch(self) -> Iterator[str]:
        patch = self._d.patch
        if patch is None:
            yield nothing("The session has no files.")
            return
        if not patch.files.files:
            yield nothing("The files are as they were at the beginning.")
            return
        count = count_text(len(patch.files.files), "file")
        yield (
            f"<p>{count}, <ins>+{patch.added}</ins> <del>−{patch.removed}</del>, from tree "
            f"{hash_code(patch.base)} to tree {hash_code(patch.tree)}.</p>"
        )
        rows = [
            f"<tr><th scope=row><code>{line(each.path, 160)}</code></th><td>{each.status}</td>"
            f"<td>+{each.added} −{each.removed}</td>"
            f"<td>{self._to.link(patch.writers.get(each.path))}</td></tr>"
            for each in patch.files.files
        ]
        yield from table(("path", "", "lines", "last written by"), rows, "changed files")
        yield from diff_markup(patch.files, PATCH_LINES)
        if patch.is_cut:
            yield nothing("The patch is too long for dossier.json: plait diff --patch prints it.")

    # ── judged ───────────────────────────────────────────────────────────────────────────────

    def verdicts(self) -> Iterator[str]:
        if not self._d.verdicts:
            yield nothing("No verdict was recorded: nothing but the steps themselves shows it.")
            return
        rows = list[str]()
        for each in self._d.verdicts:
            sign = '<b class="good">✓ passed</b>' if each.passed else '<b class="bad">✗ failed</b>'
            stands = " it stands" if each.stands else ""
            evidence = [self._evidence(shown) for shown in each.evidence]
            if each.call_before is not None and not evidence:
                call = f"{line(each.call_says)} {self._to.link(each.call_before)}"
                evidence = [f"before it: {call}"]
            detail = "" if each.detail is None else f"<br>{self._value(each.detail)}"
            tree = f"<br>on tree {hash_code(each.tree)}" if each.tree else ""
            if each.changed_since and self._d.patch is not None and self._d.patch.tree:
                since = names_text(each.changed_since)
                accepted = hash_code(self._d.patch.tree)
                tree += f", which is not the accepted {accepted}: {since} changed since"
            rows.append(
                f"<tr><th scope=row>{line(each.name, 80)}</th><td>{sign}{stands}</td>"
                f"<td>{'<br>'.join(evidence) or 'no evidence is named'}{detail}{tree}</td>"
                f"<td>{actor_text(each.actor)}<br>{self._to.link(each.at)}</td></tr>"
            )
        yield from table(("verdict", "", "evidence", "by"), rows, "verdicts")

    def _evidence(self, each: EvidenceLine) -> str:
        if each.log is None:
            return f"{hash_code(each.event)} {line(each.says)}"
        return f"{line(each.says)} {self._to.link(ref_of_event(each))}"

    def rejected(self) -> Iterator[str]:
        if not self._d.rejected:
            yield nothing("Nothing was rejected, denied, rewound or left.")
            return
        names = {
            "branch": "branch left",
            "verdict": "verdict failed",
            "consent": "not allowed",
            "policy": "refused by policy",
            "rewind": "rewound",
        }
        rows = [
            f'<tr><td class="bad">{names[each.sort]}</td><th scope=row>{line(each.what, 200)}</th>'
            f"<td>{line(each.why, 400) or 'no reason is on record'}</td>"
            f"<td>{actor_text(each.by)}<br>{self._to.link(each.at)}</td></tr>"
            for each in self._d.rejected
        ]
        yield from table(("", "what", "why", "by"), rows, "rejections")

    # ── graph and workflow ───────────────────────────────────────────────────────────────────

    def graph(self) -> Iterator[str]:
        family = self._d.family
        if family is None:
            yield nothing("The branches could not be read.")
            return
        by_step = len(self._d.steps) <= PICTURE_MAX
        sessions = branches_text(self._d)
        rows = "a row for each step" if by_step else "a row for each stretch between forks"
        yield f"<p>{sessions}, the first one leftmost; time runs down; {rows}.</p>"
        chips = [
            f'<li><i class="dot {color_class(each.color)}"></i><b>{line(each.name, 60)}</b> '
            f"{text(each.status)}, {count_text(each.step_count, 'step')}"
            f"{', merged' if each.merged_into else ''}"
            f"{', a what-if' if each.log in self._d.what_ifs else ''}</li>"
            for each in family.branches
        ]
        yield from folded_list(chips, "chips", "branches")
        items = [*self._picture(by_step=by_step)]
        yield from folded_list(items, "picture", "rows", most=2 * PICTURE_MAX)

    def _picture(self, *, by_step: bool) -> Iterator[str]:
        family = self._d.family
        assert family is not None
        at = {(each.step.log, each.step.index): each.step for each in self._d.steps}
        shown = -1
        for row in picture_rows(family, by_step=by_step):
            stretch = family.stretches[row.stretch]
            branch = family.branches[stretch.branch]
            if row.is_bend:
                yield f'<li class="bend">{row.drawing}</li>'
                continue
            index = row.step if row.step is not None else stretch.first_step
            step = at.get((branch.log, index))
            name = ""
            if stretch.branch != shown or not by_step:
                color = color_class(branch.color)
                name = f'<b class="b {color}">{line(branch.name, 40)}</b> '
            shown = stretch.branch
            if step is None:
                words = "no step"
            elif by_step:
                what = " ".join(filter(None, [step.verb, step.subject])) or step.says
                words = f'<a href="#{self._to.of_step(step)}">{line(what, 120)}</a>'
                if step.state in ("failed", "denied") or "failed" in step.marks:
                    words += ' <span class="bad">✗</span>'
                elif "passed" in step.marks:
                    words += ' <span class="good">✓</span>'
            else:
                count = count_text(stretch.step_count, "step")
                words = f'<a href="#{self._to.of_step(step)}">{count}</a>'
                words += f" events {stretch.first:,} to {stretch.last:,}"
            yield f"<li>{row.drawing}<span>{name}{words}</span></li>"

    def workflow(self) -> Iterator[str]:
        if not self._d.workflow:
            yield nothing("No workflow ran: everything was written from outside.")
            return
        yield from self._with_what_ifs()
        rows = [self._call_row(each) for each in self._d.workflow]
        heads = ("part", "class", "calls", "model calls", "tool calls", "tokens", "cost")
        yield from table(heads, rows, "parts of the workflow", most=40, figures=5)

    def _with_what_ifs(self) -> Iterator[str]:
        """Yield the sentence that a section counts what-ifs, too, if there are any."""
        if self._d.what_ifs:
            names = names_text([self._to.name(log) for log in self._d.what_ifs])
            yield (
                f"<p>Calls of what-ifs ({names}) are counted here; they are not among the amounts "
                'of <a href="#usage">the session</a>.</p>'
            )

    def _call_row(self, each: CallPath) -> str:
        spent = each.spent
        tokens = spent.input_tokens + spent.output_tokens
        cost = cost_text(spent) if spent.model_calls else ""
        return (
            f'<tr><th scope=row class="tree d{min(each.depth, 9)}">'
            f"{self._to.link(each.first, each.name)}</th>"
            f"<td><code>{line(each.workflow.rpartition(':')[2], 60)}</code></td>"
            f"<td>{each.calls:,}</td><td>{_figure(spent.model_calls)}</td>"
            f"<td>{_figure(spent.tool_calls)}</td><td>{_figure(tokens)}</td>"
            f"<td>{cost}</td></tr>"
        )

    def environment(self) -> Iterator[str]:
        for run in self._d.runs:
            yield from self._run(run)
        if not self._d.runs:
            yield nothing("No run is on record.")
        yield from self._with_what_ifs()
        if self._d.models:
            rows = [
                f"<tr><th scope=row>{line(each.model, 80) or 'a model'}</th>"
                f"<td>{each.spent.model_calls:,}</td>"
                f"<td>{text(', '.join(each.prices)) or 'no price is known'}</td>"
                f"<td>{self._to.link(each.first)}</td></tr>"
                for each in self._d.models
            ]
            yield "<h3>Models</h3>"
            yield from table(("model", "replies", "prices", "first"), rows, "models")
        if self._d.tools:
            rows = [
                f"<tr><th scope=row>{line(each.tool, 60)}</th>"
                f"<td><code>{line(each.version[:12], 20)}</code></td><td>{text(each.effect)}</td>"
                f"<td>{each.calls:,}{f', {each.failed:,} failed' if each.failed else ''}</td>"
                f"<td>{'<br>'.join([line(p) if p else 'the program' for p in each.placements[:6]])}"
                f"</td><td>{self._to.link(each.first)}</td></tr>"
                for each in self._d.tools
            ]
            yield "<h3>Tools, and where they ran</h3>"
            heads = ("tool", "version", "effect", "calls", "ran in", "first")
            yield from table(heads, rows, "tools", most=40)

    def _run(self, run: DossierRun) -> Iterator[str]:
        rows = [
            ("run", f"<code>{line(run.workflow, 120)}</code> {self._to.link(run.at)}"),
            ("status", text(": ".join(filter(None, [run.status, run.why])))),
            ("began", time_text(run.began)),
        ]
        if run.ended is not None:
            took = took_text(run.ended - run.began)
            rows.append(("ended", f"{time_text(run.ended)}, after {took}"))
        for name in ("version", "revision"):
            if value := str(getattr(run, name)):
                rows.append((name, f"<code>{text(value)}</code>"))
        if run.arguments is not None:
            rows.append(("arguments", f"<code>{line(json_line(run.arguments), 600)}</code>"))
        environment = object_of(run.environment).items()
        rows += [(name, line(str(value))) for name, value in environment]
        for taken in run.taken_up:
            killed = "the process before it was killed; " if taken.is_after_kill else ""
            says = f"{killed}{taken.says}, by {taken.actor}, {time_text(taken.time)}"
            rows.append(("taken up", f"{text(says)} {self._to.link(taken.at)}"))
        yield pairs(rows)

    # ── people and memory ────────────────────────────────────────────────────────────────────

    def people(self) -> Iterator[str]:
        if not self._d.consents:
            yield nothing("No person was asked.")
        yield from folded([self._consent(each) for each in self._d.consents], ROWS_MAX, "asks")

    def _consent(self, each: Consent) -> str:
        rows = list[tuple[str, str]]()
        if each.sort == "question":
            rows.append(("asked", text(each.question)))
            if each.choices:
                rows.append(("choices", text(", ".join(each.choices))))
        else:
            rows.append(("call", f"<b>{text(each.tool)}</b> {code(each.arguments)}"))
        rows.append(("by", f"{text(each.asked_by)}, {time_text(each.time)}"))
        shown = object_of(each.shown)
        if shown.get("why"):
            rows.append(("rule", line(str(shown["why"]))))
        if shown and shown.get("arguments") != each.arguments:
            rows.append(("shown", code(shown.get("arguments"))))
        for word in each.words:
            if word.how == "requested":
                continue
            says = f" “{text(word.words)}”" if word.words else ""
            edited = f", with {code(word.edited)}" if word.edited is not None else ""
            rows.append((word.how, f"by {text(word.actor)}, {time_text(word.time)}{says}{edited}"))
        if each.answer:
            rows.append(("answer", f"“{text(each.answer)}”"))
        if not each.answer and each.state in ("waiting", "unknown"):
            rows.append(("answer", "none yet"))
        title = {"approval": "Consent", "question": "Question", "resolution": "Unknown outcome"}
        return f"<h3>{title[each.sort]} {self._to.link(each.at)}</h3>{pairs(rows)}"

    def memory(self) -> Iterator[str]:
        d = self._d
        if not d.memory_read and not d.memory_written:
            yield nothing("No memory was read, and none was written.")
            return
        for read in d.memory_read:
            yield (
                f"<h3>Read: “{line(read.query, 120)}” {self._to.link(read.at)}</h3>"
                f"<p>by {text(read.actor)}, {time_text(read.time)}</p>"
            )
            if not read.memories:
                yield nothing("It returned none.")
            for memory in read.memories:
                yield self._memory_quote(memory)
        if d.memory_written:
            yield "<h3>Written, and decided about</h3>"
            rows = [
                f"<tr><td>{text(each.kind.removeprefix('Memory').lower())}</td>"
                f"<td>{line(each.text, 400)}<br><code>m:{text(each.memory[:8])}</code> "
                f"{text(each.state)} {self._origin(each.origin)}</td><td>{line(each.why)}</td>"
                f"<td>{actor_text(each.actor)}<br>{self._to.link(each.at)}</td></tr>"
                for each in d.memory_written
            ]
            yield from table(("", "memory", "how", "by"), rows, "memories")

    def _memory_quote(self, memory: GivenMemory) -> str:
        score = f", score {memory.score:.3g}" if memory.score is not None else ""
        used = ", ".join([self._to.link(at) for at in memory.used])
        cited = f"cited by {used}" if used else "cited by no reply"
        return (
            f"<blockquote><p>{text(memory.text)}</p><footer><code>m:{text(memory.memory[:8])}"
            f"</code> {text(memory.state)}{score}; {cited}<br>{self._origin(memory.origin)}"
            "</footer></blockquote>"
        )

    def _origin(self, origin: MemoryOrigin | None) -> str:
        if origin is None:
            return "its origin was erased"
        evidence = "; ".join([self._evidence(each) for each in origin.evidence])
        told = f", shown by {evidence}" if evidence else ""
        return (
            f"from {self._to.link(ref_of_event(origin))}, by {text(origin.actor)}, "
            f"{time_text(origin.time)}, for the {text(origin.scope)} {text(origin.owner)}, "
            f"trust: {text(origin.trust or 'none')}{told}"
        )

    # ── amounts, failures, effects ───────────────────────────────────────────────────────────

    def usage(self) -> Iterator[str]:
        usage = self._d.usage
        if usage is None:
            yield nothing("The amounts could not be read.")
            return
        rows = [
            ("in all", spent_text(usage.total)),
            ("in branches that were not merged", spent_text(usage.unmerged)),
        ]
        yield pairs(rows)
        if self._d.what_ifs:
            yield "<p>What-ifs are not counted here.</p>"
        heads = ("", "model calls", "tool calls", "tokens", "cost")
        for title, name, costs in (
            ("By model", "model", usage.by_model),
            ("By agent", "agent", usage.by_agent),
        ):
            yield f"<h3>{title}</h3>"
            cells = [
                f"<tr><th scope=row>{line(each.names.get(name) or 'the program', 80)}</th>"
                f"<td>{each.spent.model_calls:,}</td><td>{each.spent.tool_calls:,}</td>"
                f"<td>{each.spent.input_tokens + each.spent.output_tokens:,}</td>"
                f"<td>{cost_text(each.spent) if each.spent.model_calls else ''}</td></tr>"
                for each in costs
            ]
            yield from table(heads, cells, title.lower(), figures=4)
        yield "<h3>Budget</h3>"
        limits, left = usage.budget, usage.left
        if not isinstance(limits, dict):
            yield nothing("No budget was granted: nothing limited it.")
            return
        remains: Any = left if isinstance(left, dict) else {}
        yield pairs(
            [
                (name.removesuffix("_max").replace("_", " "), limit_text(name, value, remains))
                for name, value in limits.items()
                if value is not None
            ]
        )

    def failures(self) -> Iterator[str]:
        if not self._d.failures:
            yield nothing("Nothing failed.")
            return
        rows = [
            f'<tr><td class="bad">{text(each.sort)}</td><th scope=row>{line(each.what, 160)} '
            f"{self._to.link(each.at)}</th><td>{line(each.error, 300)}</td>"
            f"<td>{line(each.then, 240)} {self._to.link(each.then_at)}</td></tr>"
            for each in self._d.failures
        ]
        yield from table(("", "what", "failed with", "then"), rows, "failures")

    def effects(self) -> Iterator[str]:
        if not self._d.effects:
            yield nothing(
                "No tool reached beyond the files of the session: nothing is left to undo."
            )
            return
        yield (
            "<p>These reached beyond the files of the session. Leaving a branch, or going back, "
            "does not take them back.</p>"
        )
        rows = [
            f"<tr><th scope=row>{line(each.tool, 60)} {self._to.link(each.at)}</th>"
            f"<td>{code(each.arguments)}</td><td>{text(each.state)}, {text(each.standing)}<br>"
            f"<span class=q>{text(each.effect)}</span></td><td>{line(each.says)}</td></tr>"
            for each in self._d.effects
        ]
        yield from table(("tool", "arguments", "", "says"), rows, "effects")


def _figure(count: int) -> str:
    return f"{count:,}" if count else ""
