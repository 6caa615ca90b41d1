"""The commands, by section: the module of each below `plait.cli`, and its line in `--help`.

A test holds each line against the docstring of its command.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A command in the table."""

    name: str
    place: str  # MODULE:ATTRIBUTE
    help: str


SECTIONS: dict[str, tuple[Entry, ...]] = {
    "Begin": (
        Entry(
            "demo",
            "demo:demo_command",
            "Watch a run that is killed, resumed and checked, in 20 seconds.",
        ),
        Entry("init", "writing:init", "Make a store: the folder .plait in DIR, or here."),
        Entry(
            "migrate",
            "migrating:migrate_command",
            "Make or upgrade the tables of a PostgreSQL store.",
        ),
        Entry("new", "writing:new", "Open a session, and say TEXT in it."),
        Entry("copy", "copying:copy_command", "Copy sessions from one store to another."),
        Entry(
            "completion",
            "completion:completion_command",
            "Print the script that completes commands in your shell.",
        ),
    ),
    "Run": (
        Entry("run", "running:run_command", "Run a workflow, and print what it says in the end."),
        Entry("chat", "chat:chat_command", "Talk to a model, a session or a workflow, on record."),
        Entry("resume", "running:resume_command", "Take up a run that did not come to its end."),
        Entry(
            "replay",
            "running:replay_command",
            "Go through the last run of a session by its record alone.",
        ),
        Entry(
            "whatif", "whatif:whatif_command", "Run again from an event on, with something changed."
        ),
        Entry(
            "debug",
            "debugging:debug_command",
            "Open the debugger in the program of a run, at event K.",
        ),
        Entry("grant", "writing:grant", "Grant a session a budget from here on."),
    ),
    "Cluster": (
        Entry("submit", "workers:submit_command", "Submit a run to the workers of this store."),
        Entry(
            "worker",
            "workers:worker_command",
            "Execute the submitted runs of the workflows in these modules.",
        ),
        Entry(
            "cluster",
            "cluster:cluster",
            "Workers and submitted runs: ls, top, runs, why, drain, jobs, …",
        ),
        Entry("deploy", "deploy:deploy", "Documents that start workers on other machines: k8s."),
    ),
    "Look": (
        Entry("view", "viewing:view_command", "Open a session in a browser; S@42 at event 42."),
        Entry(
            "serve",
            "viewing:serve_command",
            "Serve the sessions of a store as a page, to this machine.",
        ),
        Entry(
            "mcp",
            "mcp_serving:mcp_command",
            "Serve the sessions of a store to an MCP client.",
        ),
        Entry("ls", "listing:ls", "List sessions, the latest opened first."),
        Entry("runs", "listing:runs", "List runs, the latest begun first."),
        Entry("show", "sessions:show", "Show a session, at its last event or at S@k."),
        Entry("log", "history:log", "Tell what happened in a session, step by step."),
        Entry("tail", "tail:tail", "Show the last events, the newest last."),
        Entry("find", "finding:find", "Search what was said and recorded, in the whole store."),
        Entry("cost", "cost:cost", "Sum up what models and tools were used, and what that cost."),
    ),
    "Ask": (
        Entry("why", "tracing:why", "Tell where something comes from."),
        Entry("influence", "tracing:influence", "Tell what became of something."),
        Entry("graph", "tracing:graph", "Show the family of a session: all forks and merges."),
        Entry(
            "diff",
            "tracing:diff_command",
            "Compare two values: messages, facts, verdicts, files, cost.",
        ),
        Entry("bisect", "bisecting:bisect_command", "Find the step that broke a test."),
    ),
    "Memory": (
        Entry(
            "memory", "memory:memory", "Memories, their evidence and history: ls, show, search, …"
        ),
    ),
    "Files": (
        Entry(
            "to", "places:to_command", "Place a session: where its tools run, and on which files."
        ),
        Entry("files", "files:files_command", "List the files of a session, with mode and size."),
        Entry("cat", "files:cat", "Print a file as it was: S@7:src/cart.py."),
        Entry("blame", "files:blame_command", "Tell which event wrote each line of a file."),
        Entry("checkout", "files:checkout", "Write the files of a session into an empty folder."),
        Entry(
            "apply",
            "publishing:apply",
            "Publish the files of a session to the folder they came from.",
        ),
        Entry("sandbox", "places:sandbox", "Sandboxes that exist: ls, rm, prune."),
    ),
    "Branch": (
        Entry("fork", "branching:fork", "Branch off from a session, at its last event or at S@k."),
        Entry(
            "rewind", "branching:rewind", "Go on from the story at an earlier event: SEQ, or S@k."
        ),
        Entry(
            "merge", "branching:merge", "Take the results of other branches in: facts and files."
        ),
    ),
    "Record": (
        Entry("say", "writing:say", "Add a message."),
        Entry("note", "writing:note", "Record a finding."),
        Entry("fact", "writing:fact", "Record a fact under a key."),
        Entry("decide", "writing:decide", "Record a decision under a key."),
        Entry("retract", "writing:retract", "Take a fact, a decision or a finding back."),
        Entry(
            "todo", "writing:todo", "Add pending work: a next step, an open question, a hypothesis."
        ),
        Entry(
            "settle", "writing:settle", "Settle pending work, named by its key or by what it says."
        ),
        Entry(
            "require", "writing:require", "Require a verdict before a session is merged or closed."
        ),
        Entry("validate", "writing:validate", "Record a verdict on a session as it is now."),
        Entry("feedback", "feedback:feedback", "Say how the last run of a session did."),
    ),
    "People": (
        Entry("inbox", "inbox:inbox", "Show what waits for people."),
        Entry(
            "approve",
            "inbox:approve",
            "Allow what an agent asks for, exactly as `plait inbox` shows it.",
        ),
        Entry("deny", "inbox:deny", "Refuse what an agent asks for."),
        Entry("answer", "inbox:answer", "Answer a question."),
        Entry(
            "resolve", "inbox:resolve", "Say what became of an effect whose outcome is not known."
        ),
        Entry("send", "inbox:send", "Say something to a session."),
        Entry("signal", "inbox:signal", "Tell a session that something has happened."),
        Entry("cancel", "inbox:cancel", "Ask the open run of a session to end."),
    ),
    "End": (
        Entry("pause", "writing:pause", "Let a session rest."),
        Entry("unpause", "writing:unpause", "Take a paused session up again."),
        Entry("close", "writing:close", "End a session: nothing is appended any more."),
        Entry("archive", "writing:archive", "Put a closed session away."),
    ),
    "Check": (
        Entry(
            "check",
            "check:check_command",
            "Name the open runs that would diverge with the code at hand.",
        ),
        Entry(
            "verify",
            "verifying:verify_command",
            "Check every event against its hash and its neighbours.",
        ),
        Entry(
            "dossier",
            "dossier:dossier_command",
            "Write the evidence of a session into a folder.",
        ),
        Entry(
            "eval",
            "evaluating:eval_group",
            "Evaluate a workflow on a dataset: run, show, diff.",
        ),
        Entry(
            "export",
            "exporting:export_command",
            "Send the calls of a session as OpenTelemetry spans.",
        ),
        Entry("doctor", "doctor:doctor", "Check store, disk, installation, keys and sandboxes."),
        Entry("gc", "places:gc", "Remove blobs that no event leads to."),
    ),
}
