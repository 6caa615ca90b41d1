"""The JSON documents for programs, one function per shape.

The shapes are a promise, kept by tests: snake_case keys, whole ids, times in microseconds since
1970 (UTC), nothing cleaned and nothing cut. The shell prints them, the server sends them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from plait.errors import PlaitError
from plait.event import Event, Json
from plait.event.kinds import Trees, ValidationRecorded
from plait.outline.standing import SessionStanding, StandingReader
from plait.outline.texts import body_of
from plait.session import Diff, Message, Session
from plait.session.blame import Blame, Line
from plait.session.branching import durability_of
from plait.session.events import path_events
from plait.session.graph import Edge, Node
from plait.session.ledger import spent_in_branches
from plait.session.ports import store_at
from plait.session.state import Spent
from plait.session.trace import Step, Trace
from plait.session.value import core_of
from plait.session.views import Effect, QueuedTurn, Validation
from plait.store import Row, StoreFault, Unchecked
from plait.workspace import FileChange, TreeEntry
from plait.workspace.changes import Changes
from plait.workspace.diff import Stat
from plait.workspace.tree import shown_path

Document = dict[str, Any]
VERDICTS = 20  # in the document of a state


def session_document(session: Session) -> Document:
    parent = session.lineage.parent
    return {
        "id": session.id,
        "short": session.short,
        "place": session.seq,
        "head": session.head,
        "title": session.title,
        "label": session.lineage.label,
        **_standing_document(session),
        "user": session.user,
        "project": session.project,
        "tags": session.tags,
        "parent": place_document(parent) if parent else None,
        "updated": store_at(session.store).event(session.head).time,
        "queued": len(session.inbox.queued),
        "store": session.store,
    }


def _standing_document(session: Session) -> Document:
    store, status = store_at(session.store), session.status
    is_tip = status == "waiting" and store.log(session.id).head == session.head
    standing = (
        StandingReader(store).of_status(session.id, status) if is_tip else SessionStanding(status)
    )
    return {"status": standing.status, "standing": standing.text, "due": standing.is_due}


def listed_document(session: Session, row: Row) -> Document:
    """Return the same document for a session at its tip, from its row: nothing has to be folded."""
    parent = row["parent"]
    return {
        "id": session.id,
        "short": session.short,
        "place": session.seq,
        "head": session.head,
        "title": row["title"],
        "label": row["label"],
        "status": row["status"],
        "standing": row["standing"],
        "user": row["user"],
        "project": row["project"],
        "tags": json.loads(str(row["tags"])),
        "parent": {"id": parent, "place": row["place"]} if parent else None,
        "updated": store_at(session.store).event(session.head).time,
        "queued": row["queued"],
        "due": row["due"],
        "store": session.store,
    }


def _queued_document(turn: QueuedTurn) -> Document:
    return {
        "id": turn.event.id,
        "time": turn.time,
        "actor": turn.actor,
        "text": turn.text,
        "key": turn.key or None,
        "attended": turn.is_attended,
    }


def place_document(session: Session) -> Document:
    return {"id": session.id, "place": session.seq}


def event_document(event: Event) -> Document:
    header = event.header
    return {
        "id": event.id,
        "session": header.log,
        "seq": header.seq,
        "kind": header.kind,
        "time": header.time,
        "actor": header.actor,
        "behalf": header.behalf,
        "origin": header.origin,
        "run": header.run,
        "call": header.call,
        "parents": list(header.parents),
        "causes": list(header.causes),
        "body": _body(event),
    }


def _body(event: Event) -> Any:
    try:
        return msgspec.to_builtins(event.body)
    except PlaitError:  # erased, damaged, or of a newer Plait: the header is still of use
        return None


def message_document(message: Message) -> Document:
    return {
        "id": message.id,
        "session": message.log,
        "seq": message.seq,
        "time": message.time,
        "actor": message.actor,
        "role": message.role,
        "name": message.name,
        "branch": message.branch,
        "text": message.text,
        "parts": msgspec.to_builtins(message.parts),
    }


def show_document(session: Session, messages: int | None) -> Document:
    """Return a session and all it knows. `messages` counts those from the end; None: all."""
    said = session.messages
    not_merged = spent_in_branches(session)
    return {
        **state_document(session),
        "usage": spent_document(session.budget.used + not_merged),
        "not_merged": spent_document(not_merged),
        "validation": [
            _verdict_document(each.name, each.passed, each.detail, each)
            for each in session.checks.verdicts
        ],
        "message_count": len(said),
        "messages": [
            message_document(message)
            for message in (said if messages is None else said[len(said) - messages :])
        ],
    }


def state_document(session: Session) -> Document:
    """Return a session and its state, without its messages and the cost of its branches, and with
    the newest verdicts alone: it takes about as long for a long session as for a short one.
    """
    facts = session.facts
    known = {key: facts.of(key) for key in facts}
    return {
        **session_document(session),
        "opened": session.lineage.statuses[0].time,
        "lineage": [place_document(each) for each in session.lineage.sessions],
        "continues": place_document(session.lineage.continues)
        if session.lineage.continues
        else None,
        "durability": durability_of(session),
        "runs": [msgspec.structs.asdict(run) for run in session.runs],
        "facts": {
            key: {
                "kind": each.kind,
                "value": each.value,
                **_ref_document(each.at),
                "review_by": each.review_by,
            }
            for key, each in known.items()
        },
        "pending": {
            key: {"kind": each.kind, "what": each.what, **_ref_document(each.at)}
            for key, each in session.pending.items()
        },
        "budget": _full_document(session.budget.limits),
        "left": _full_document(session.budget.left_now),
        "gates": {
            name: {"by": gate.by, **_ref_document(gate.at)}
            for name, gate in session.checks.gates.items()
        },
        "validation": _newest_verdicts(session),
        "placement": _full_document(session.files.placement),
        "tree": session.files.tree,
        "changed": changed_document(changed_by(session.events[-1])),
        "queue": [_queued_document(turn) for turn in session.inbox.queued],
    }


def _newest_verdicts(session: Session) -> list[Document]:
    core = core_of(session)
    kinds = frozenset((ValidationRecorded.__name__,))
    found = list[Document]()
    for _, event in path_events(core.store, core.state.story.path, kinds, reverse=True):
        body = body_of(event)
        if isinstance(body, ValidationRecorded):
            found.append(_verdict_document(body.name, body.passed, body.detail, event))
        if len(found) == VERDICTS:
            break
    return found[::-1]


def _verdict_document(name: str, passed: bool, detail: Json, at: Event | Validation) -> Document:
    return {"name": name, "passed": passed, "detail": detail, "session": at.log, "seq": at.seq}


def _ref_document(ref: Any) -> Document:
    return {"session": ref.log, "seq": ref.seq, "event": ref.id}


def _full_document(value: msgspec.Struct | None) -> Document | None:
    """Return a struct with all its fields, also those left at their default."""
    return (
        None
        if value is None
        else {name: msgspec.to_builtins(getattr(value, name)) for name in value.__struct_fields__}
    )


def spent_document(spent: Spent) -> Document:
    usage = spent.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "estimated_tokens": usage.estimated_tokens,
        "cost_usd": spent.cost.dollars,
        "unpriced": spent.unpriced,
        "model_calls": spent.model_calls,
        "tool_calls": spent.tool_calls,
    }


def step_document(step: Step) -> Document:
    return {
        "depth": step.depth,
        "how": step.how,
        "id": step.id,
        "session": step.log,
        "seq": step.seq,
        "kind": step.kind,
        "branch": step.branch,
        "actor": step.actor,
        "time": step.time,
        "says": step.says,
        "relation": step.relation,
        "reason": step.reason,
        "placement": step.placement,
        "files": list(step.files),
        **({"prompt": step.prompt} if step.prompt is not None else {}),
    }


def trace_document(trace: Trace) -> Document:
    return {
        "about": trace.about,
        "complete": trace.complete,
        "steps": [step_document(step) for step in trace],
    }


def node_document(node: Node) -> Document:
    return {
        "id": node.id,
        "type": node.type,
        "name": node.name,
        "session": node.session,
        "place": node.place,
        "detail": node.detail,
    }


def edge_document(edge: Edge) -> Document:
    return {"type": edge.type, "source": edge.source, "target": edge.target, "place": edge.place}


def diff_document(diff: Diff, left: Session, right: Session) -> Document:
    return {
        "left": session_document(left),
        "right": session_document(right),
        "different": bool(diff),
        "same_story": diff.is_same_story,
        "messages": {
            "common": diff.messages.common,
            "left": [message_document(message) for message in diff.messages.left],
            "right": [message_document(message) for message in diff.messages.right],
        },
        "calls": {
            "common": diff.calls.common,
            "left": [*map(_call_document, diff.calls.left)],
            "right": [*map(_call_document, diff.calls.right)],
        },
        "facts": {key: _full_document(sides) for key, sides in diff.facts.items()},
        "validation": {name: _full_document(sides) for name, sides in diff.validation.items()},
        "files": files_document(diff.files),
        "usage": {"left": spent_document(diff.cost[0]), "right": spent_document(diff.cost[1])},
    }


def _call_document(call: Effect) -> Document:
    return {
        "id": call.call,
        "session": call.request.log,
        "seq": call.request.seq,
        "tool": call.tool,
        "arguments": call.arguments,
        "actor": call.actor,
        "outcome": call.state,
    }


# ── files ────────────────────────────────────────────────────────────────────────────────────


def entry_document(path: str, entry: TreeEntry) -> Document:
    """Return an entry. Bytes of a path that are no text stand as \\xNN."""
    return {"path": shown_path(path), **_entry(entry)}


def _entry(entry: TreeEntry) -> Document:
    target = shown_path(entry.target) if entry.kind == "link" else None
    return {
        "kind": entry.kind,
        "mode": f"{entry.mode:o}",
        "size": entry.size,
        "target": target,
        "blobs": list(entry.blobs),
    }


def files_document(changes: Changes) -> Document:
    come = {new: old for old, new in changes.renamed_paths.items()}
    told = [
        (each, stat)
        for each, stat in zip(changes, changes.stat(), strict=True)
        if each.path not in changes.renamed_paths
    ]
    return {
        "left": changes.left,
        "right": changes.right,
        "changes": [_change(each, stat, come.get(each.path)) for each, stat in told],
    }


def _change(change: FileChange, stat: Stat, old: str | None) -> Document:
    status = (
        "renamed"
        if old is not None
        else "added"
        if change.before is None
        else "removed"
        if change.after is None
        else "changed"
    )
    return {
        "status": status,
        "path": shown_path(change.path),
        "old_path": shown_path(old) if old is not None else None,
        "added_lines": stat.added if old is None else 0,
        "removed_lines": stat.removed if old is None else 0,
        "before": _entry(change.before) if change.before else None,
        "after": _entry(change.after) if change.after else None,
    }


def line_document(line: Line) -> Document:
    return {
        "number": line.number,
        "text": line.text,
        "event": line.event,
        "session": line.log,
        "seq": line.seq,
        "kind": line.kind,
        "tool": line.tool or None,
        "actor": line.actor,
        "time": line.time,
        "branch": line.branch or None,
    }


def blame_document(blame: Blame) -> Document:
    return {"path": blame.path, "lines": [line_document(line) for line in blame]}


def changed_by(event: Event) -> Trees | None:
    """Return the trees before and after an event; None if it is no outcome of a tool, or the tool
    has no files.
    """
    try:
        trees = getattr(event.body, "trees", None)
    except PlaitError:  # erased, damaged, or of a newer Plait
        return None
    return trees if isinstance(trees, Trees) else None


def changed_document(trees: Trees | None) -> Document | None:
    return (
        None
        if trees is None
        else {"before": trees.before, "after": trees.after, "paths": list(trees.changed)}
    )


def unchecked_document(unchecked: Unchecked) -> Document:
    return {"what": unchecked.what, "why": unchecked.why}


def fault_document(fault: StoreFault) -> Document:
    return {"session": fault.log, "seq": fault.seq, "what": fault.what}
