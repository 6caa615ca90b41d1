"""Steps: what a person calls one thing that happened, from real runs."""

from __future__ import annotations

import pytest

from plait.event import VOCABULARY
from plait.event.kinds import KINDS
from plait.ids import LogId
from plait.outline.details import step_detail
from plait.outline.outlines import Outlines
from plait.outline.records import BRACKET
from plait.outline.shapes import StepShape
from plait.outline.step_fold import BRACKETS, TYPES_OF_KINDS
from plait.outline.steps import outline_shape, step_page
from tests.outline.sessions import ViewStore

pytestmark = pytest.mark.long  # `make quick` leaves these out


def log_of(view: ViewStore, name: str) -> LogId:
    """The log of a session, or of a branch of it: `repair/clamp`."""
    session, _, label = name.partition("/")
    if not label:
        return view.sessions[session]
    rows = view.store.rows("session", "session", {"label": label}, limit=10)
    return next(LogId(str(row["log"])) for row in rows if row["parent"] == view.sessions[session])


def steps_of(view: ViewStore, outlines: Outlines, name: str) -> list[StepShape]:
    return list(step_page(outlines, log_of(view, name)).steps)


def line(step: StepShape) -> str:
    """A step as the table below has it."""
    state = "" if step.state == "done" else f" ({step.state})"
    return f"{step.type}{state}: {step.verb}|{step.subject}|{step.says}".rstrip("|")


TABLE = {
    "repair": [
        "message: ||Checkout goes negative: see ISSUE.md",
        "placement: placed in||local, PLACE",
        "run: run started|Repair",
        "tool: read_file|ISSUE.md|A coupon larger than the cart gives a negative total.",
        "reply: ||Clamp the discount, or reject the coupon. Try both.",
        "merge: merged|clamp",
        "fact: decided|strategy|clamp",
        "fact: fact|tests|test_cart.py",
        "pending: to do|support|tell support about coupons",
        "tool: shell|rm -f ISSUE.md",
        "taken: taken up again",
        "reply: ||Tidy.",
        "ended: run finished",
    ],
    "repair/reject": [
        "fork: forked as|reject|from ROOT@13",
        "tool: read_file|cart.py|return sum(prices) - coupon",
        "tool: edit_file|cart.py",
        "tool: shell|python3 -B -m unittest -q 2>&1 | tail -4|FAILED (errors=1)",
        "reply: ||It is rejected now.",
        "tool (failed): shell|python3 -B -m unittest -q|FAILED (errors=1)",
        "verdict (failed): tests|failed",
    ],
    "approval": [
        "message: ||Pay the invoice of ACME.",
        "run: run started|Pay",
        "tool (waiting): wire|ACME|waits for consent",
    ],
    "answered": [
        "message: ||Ship this one, too.",
        "run: run started|Ship",
        "question: asked|Which port?|Kiel",
        "taken: taken up again",
        "message: ||It is urgent.",
        "fact: decided|port|Kiel",
        "ended: run finished",
    ],
    "unknown": [
        "message: ||Pay ACME at once.",
        "run: run started|Settle",
        "tool (unknown): wire|ACME|it may have happened: its process ended, or lost the run,"
        " meanwhile",
        "taken: taken up again",
    ],
    "resolved": [
        "message: ||Pay ACME at once.",
        "run: run started|Settle",
        "tool: wire|ACME|happened, says human:ann: it is on the statement",
        "taken: taken up again",
        "taken: taken up again",
        "fact: decided|paid|90 sent to ACME",
        "ended: run finished",
    ],
    "killed": [
        "message: ||How many rows?",
        "run: run started|Count",
        "tool (open): count_rows|carts",
        "tool (open): count_rows|orders",
    ],
    "resumed": [
        "message: ||How many rows are there?",
        "run: run started|Count",
        "tool: count_rows|carts|88",
        "tool: count_rows|orders|1201",
        "taken: taken up again",
        "reply: ||1,201 orders, 88 carts.",
        "ended: run finished",
    ],
    "rewound": [
        "message: ||Why is it slow?",
        "fact: fact|db|postgres 15",
        "fact: found|cause|the index is missing",
        "pending: to do|index|add it",
        "fact: decided|plan|add an index",
        "rewind: rewound to|3|wrong track",
        "note: attached|p95 in ms|41.5",
        "note: linked|langfuse|trace/9f31",
        "message: ||Slow again since noon.",
    ],
    "failed": [
        "message: ||Count what is not there.",
        "run: run started|Fails",
        "tool (failed): count_rows|nothing|'nothing'",
        "reply: ||There is no such table.",
        "ended (failed): run failed|ValueError|the warehouse does not answer",
    ],
    "cancelled": [
        "message: ||Ship it by air.",
        "run: run started|Ship",
        "question (failed): asked|Which port?",
        "ended: run cancelled||no longer needed",
    ],
    "closed": ["message: ||An old matter.", "life: ||closed: done"],
    "timer": [
        "message: ||Release that.",
        "run: run started|Release",
        "wait: requires|review|by human:ann",
        "wait: waits for|the verdict review|does not wait for the verdict any more",
        "taken: taken up again",
        "verdict: review|passed",
        "tool: count_rows|carts|88",
        "wait (waiting): waits for|built",
    ],
    "debate": [
        "message: ||How is the text?",
        "run: run started|Debate",
        "merge: merged|pro, con",
        "ended: run finished",
    ],
}


@pytest.mark.parametrize("name", TABLE)
def test_steps_say_what_matters(view: ViewStore, outlines: Outlines, name: str) -> None:
    root = view.session("repair").short
    found = [line(step).replace(f"{root}@", "ROOT@") for step in steps_of(view, outlines, name)]
    placed = "placement: placed in||local, "
    expected = [each.replace("PLACE", "") for each in TABLE[name]]
    assert [placed if each.startswith(placed) else each for each in found] == expected


def test_a_small_repair_fits_on_one_screen(view: ViewStore, outlines: Outlines) -> None:
    logs = [log_of(view, name) for name in ("repair", "repair/reject", "repair/clamp")]
    records = [outlines.record(log) for log in logs]
    assert sum(len(record.owners) for record in records) == 83
    assert sum(record.step_count for record in records) == 27


def test_a_call_is_one_step_with_its_approval_attempts_and_files(
    view: ViewStore, outlines: Outlines
) -> None:
    step = next(each for each in steps_of(view, outlines, "repair") if each.verb == "shell")
    assert (step.events, step.seq) == ((22, 23, 24, 27, 28, 29), 29)
    assert (step.marks, step.files, step.exit_code) == (("files", "approval"), ("ISSUE.md",), 0)
    assert (step.tokens, step.cost_usd, step.path) == (145, 0.00015, "repair/tidy")
    detail = step_detail(outlines, step.log, 24)
    assert detail.step == step
    assert detail.arguments == {"command": "rm -f ISSUE.md"}
    assert [(each.how, each.actor) for each in detail.approvals] == [
        ("requested", "agent:repair/tidy"),
        ("corrected", "human:ann"),
    ]
    assert detail.approvals[1].edited == {"command": "rm -f ISSUE.md"}
    assert [(each.number, each.state) for each in detail.attempts] == [(1, "done")]
    session = view.session("repair")
    assert detail.tree_after == session.files.tree != detail.tree_before
    request = session.events[22]
    assert detail.idempotency_key == request.id and detail.effect == "workspace"
    assert detail.model == "small-1" and detail.placement_text.startswith("local, ")
    assert detail.usage is not None and detail.usage.input_tokens == 120 and detail.ask is None


def test_an_open_ask_is_named(view: ViewStore, outlines: Outlines) -> None:
    for name in ("approval", "question", "unknown", "gate"):
        session = view.session(name)
        (ask,) = session.inbox.waiting
        assert step_detail(outlines, session.id, ask.seq).ask == ask.event, name


def test_retries_are_attempts_of_one_step(view: ViewStore, outlines: Outlines) -> None:
    reply = steps_of(view, outlines, "resumed")[5]
    detail = step_detail(outlines, reply.log, reply.seq)
    assert [(each.number, each.state, each.words) for each in detail.attempts] == [
        (1, "failed", "Overloaded: come back later"),
        (2, "done", ""),
    ]
    assert reply.marks == () and detail.failure == "" and detail.parts[0].text == reply.says
    assert reply.cost_usd is None and reply.tokens == 30  # its price is not known


def test_a_run_that_was_killed_is_marked_where_it_is_taken_up(
    view: ViewStore, outlines: Outlines
) -> None:
    marks = {
        name: [step.marks for step in steps_of(view, outlines, name) if step.type == "taken"]
        for name in ("resumed", "resolved", "answered", "repair")
    }
    assert marks == {
        "resumed": [("kill",)],
        "resolved": [("kill",), ()],
        "answered": [()],
        "repair": [()],
    }


def test_rewound_steps_and_links(view: ViewStore, outlines: Outlines) -> None:
    steps = steps_of(view, outlines, "rewound")
    assert [step.is_rewound for step in steps] == [False] * 2 + [True] * 3 + [False] * 4
    assert steps[5].links[0].seq == 3
    assert outline_shape(outlines, steps[0].log).rewound == ((4, 6),)
    (fork, *_) = steps_of(view, outlines, "repair/clamp")
    assert [(link.log, link.seq) for link in fork.links] == [(view.sessions["repair"], 13)]
    merge = next(step for step in steps_of(view, outlines, "repair") if step.type == "merge")
    assert [(link.log, link.seq) for link in merge.links] == [(fork.log, 37)]


def test_memories_and_compactions(view: ViewStore, outlines: Outlines) -> None:
    kinds = [(step.type, step.verb) for step in steps_of(view, outlines, "remembered")]
    assert ("compaction", "put in short") in kinds and ("memory", "recalled") in kinds


def test_large_outputs_and_pictures_are_parts(view: ViewStore, outlines: Outlines) -> None:
    drawn, printed, failed = [
        step for step in steps_of(view, outlines, "large") if step.type == "tool"
    ]
    picture = step_detail(outlines, drawn.log, drawn.seq).parts[0]
    assert (picture.type, picture.media_type, picture.text) == ("image", "image/png", "a red dot")
    assert picture.blob and view.store.get_blob(picture.blob).startswith(b"\x89PNG")
    assert printed.says == "line 199999"
    detail = step_detail(outlines, printed.log, printed.seq)
    assert all(len(part.text) <= 64 * 1024 for part in (*detail.parts, *detail.kept))
    assert (failed.state, failed.exit_code) == ("failed", 3)


def test_hostile_texts_come_as_they_were_recorded(view: ViewStore, outlines: Outlines) -> None:
    says = {step.says for step in steps_of(view, outlines, "hostile")}
    assert "<script>alert(0)</script>" in says and any("\u202e" in text for text in says)


def test_the_outline_has_a_value_per_step(view: ViewStore, outlines: Outlines) -> None:
    steps = steps_of(view, outlines, "repair")
    shape = outline_shape(outlines, steps[0].log, 5)
    assert (shape.from_index, shape.total) == (5, len(steps))
    rest = steps[5:]
    assert list(shape.seqs) == [step.seq for step in rest]
    assert list(shape.firsts) == [step.first for step in rest]
    assert list(shape.types) == [step.type for step in rest]
    assert list(shape.states) == [step.state for step in rest]
    assert list(shape.times_ms) == [step.time // 1000 for step in rest]
    assert shape.marks == {step.index: step.marks for step in rest if step.marks}


def test_every_event_belongs_to_one_step_or_is_a_bracket(
    view: ViewStore, outlines: Outlines
) -> None:
    for row in view.store.rows("session", "session", {}, limit=1000):
        record = outlines.record(LogId(str(row["log"])))
        events = list(view.store.read(record.log, record.place + 1, record.tip))
        assert len(record.owners) == len(events)
        held = [seq for index in range(record.step_count) for seq in record.events_of(index)]
        assert len(held) == len(set(held))
        for event, owner in zip(events, record.owners, strict=True):
            is_bracket = owner == BRACKET
            assert is_bracket == (event.seq not in held)
            if is_bracket:
                assert event.kind in BRACKETS or event.kind == "RunResumed", event
        assert list(record.firsts) == sorted(record.firsts)


def test_every_kind_has_a_type_or_is_a_note() -> None:
    """A kind that is added has to be given a place: a note is for kinds without one."""
    notes = {kind.__name__ for kind in KINDS} - TYPES_OF_KINDS.keys()
    assert all(name in VOCABULARY for name in TYPES_OF_KINDS)
    assert notes == {
        "BodyRedacted",
        "CheckpointSigned",
        "CopyBegun",
        "CopyFinished",
        "EvidenceAttached",
        "GrantChanged",
        "HouseOpened",
        "JobEnded",
        "JobExpired",
        "JobIndexEnded",
        "JobIndexFailed",
        "JobIndexStarted",
        "JobResumed",
        "JobSubmitted",
        "JobSuspended",
        "KeeperSet",
        "KeptEnded",
        "KeptStarted",
        "Linked",
        "PrincipalChanged",
        "RoleChanged",
        "ScratchSet",
        "TurnPosted",
    }
