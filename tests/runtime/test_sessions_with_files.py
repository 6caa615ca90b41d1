"""Sessions whose files fork, rewind, merge, resume and replay with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from plait import (
    Agent,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    replay,
    resume,
    secrets,
)
from plait.errors import (
    InvalidValue,
    IsolationMissing,
    MergeConflict,
    NotApplied,
    NotPlaced,
    SandboxFailed,
    ToolFailed,
    UnknownBackend,
)
from plait.event import kinds as k
from plait.model.base import OutputDelta
from plait.sandbox import Limits, Sandbox
from plait.session.ports import store_at
from plait.tool import tool
from plait.workspace.copy_state import cache_folder
from plait.workspace.files import LocalFiles
from tests.support import filled_folder, sh

pytestmark = pytest.mark.long  # `make quick` leaves these out


@tool(effect="workspace")
def write(path: str, text: str, sandbox: Sandbox) -> str:
    """Write a file."""
    sandbox.files.write(path, text.encode())
    return f"wrote {path}"


@tool(effect="pure")
def read(path: str, sandbox: Sandbox) -> str:
    """Read a file."""
    return sandbox.files.read(path).decode()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    cart = "def total(items):\n    return sum(items) + 1\n"
    folder = filled_folder(
        tmp_path / "repo",
        {"src/cart.py": cart, "README": "a shop\n", "run.sh": "#!/bin/sh\necho hi\n"},
    )
    (folder / "run.sh").chmod(0o755)
    return folder


@pytest.fixture
def placed(repo: Path, tmp_path: Path) -> Session:
    return Session("Fix the failing test", store=tmp_path / "store").to("local", repo)


def test_placing_records_the_tree_and_touches_nothing(placed: Session, repo: Path) -> None:
    assert placed.files.tree and placed.files.paths() == ["README", "run.sh", "src/cart.py"]
    assert placed.files.workspace.entry("run.sh").mode == 0o755
    body = placed.events[-1].body
    assert (
        isinstance(body, k.PlacementChanged)
        and body.placement.backend == "local"
        and body.placement.rung
    )
    used = placed.use(write, path="src/cart.py", text="fixed\n")
    assert used.files.text("src/cart.py") == "fixed\n"
    assert (repo / "src" / "cart.py").read_text().startswith("def total")
    assert placed.files.text("src/cart.py").startswith("def total")  # the value is as it was


def test_every_tool_event_has_trees_and_a_place(placed: Session) -> None:
    used = placed.use(sh, command="echo new > new.txt; rm README; exit 3")
    body = used.events[-1].body
    assert isinstance(body, k.ToolReturned) and body.exit_code == 3
    assert (
        body.trees
        and body.trees.before == placed.files.tree
        and body.trees.after == used.files.tree
    )
    assert set(body.trees.changed) == {"README", "new.txt"}
    assert (
        body.placement
        and body.placement.rung
        and body.placement.sandbox
        and body.placement.network == "off"
    )
    looked = used.use(read, path="new.txt")
    assert looked.result == "new\n" and looked.files.tree == used.files.tree
    body = looked.events[-1].body
    assert (
        isinstance(body, k.ToolReturned)
        and body.trees
        and body.trees.before == body.trees.after == used.files.tree
    )


def test_branches_have_files_of_their_own(placed: Session) -> None:
    first = placed.use(write, path="a.txt", text="1\n")
    a, b = first.fork("a"), first.fork("b")
    a, b = a.use(write, path="a.txt", text="A\n"), b.use(sh, command="cat a.txt; echo B > b.txt")
    assert b.result == "1\n"
    assert a.files.text("a.txt") == "A\n" and "b.txt" not in a.files.workspace
    assert b.files.text("a.txt") == "1\n" and b.files.text("b.txt") == "B\n"
    assert first.files.text("a.txt") == "1\n"
    on = first.use(sh, command="cat a.txt; ls")
    assert on.result == "1\nREADME\na.txt\nrun.sh\nsrc\n"


def test_rewinding_brings_files_back_that_a_command_changed(placed: Session) -> None:
    changed = placed.use(
        sh, command="echo x > x; rm -r src; chmod 600 run.sh; mkdir empty; ln -s README link"
    )
    assert changed.diff(placed).files
    back = changed.rewind(placed.seq)
    assert back.files.tree == placed.files.tree
    seen = back.use(sh, command="ls -A; stat -c %a run.sh; cat src/cart.py | head -1")
    assert (
        seen.result == "README\nrun.sh\nsrc\n755\ndef total(items):\n"
        and seen.files.tree == placed.files.tree
    )


def test_merging_is_three_way_by_path(placed: Session) -> None:
    a = placed.fork("a").use(
        write, path="src/cart.py", text="def total(items):\n    return sum(items)\n"
    )
    b = placed.fork("b").use(sh, command="mv README README.md && echo more >> README.md")
    merged = a.merge(b)
    assert merged.files.text("src/cart.py").endswith("sum(items)\n")
    assert (
        merged.files.text("README.md") == "a shop\nmore\n"
        and "README" not in merged.files.workspace
    )
    c = placed.fork("c").use(write, path="src/cart.py", text="def total(items):\n    return 0\n")
    with pytest.raises(MergeConflict, match=r"src/cart\.py") as caught:
        merged.merge(c)
    assert caught.value.conflicts["src/cart.py"]["c"] == "def total(items):\n    return 0\n"
    chosen = merged.merge(c, resolve={"src/cart.py": "def total(items):\n    return 7\n"})
    assert chosen.files.text("src/cart.py").endswith("7\n") and chosen.files.text(
        "README.md"
    ).endswith("more\n")
    assert chosen.use(sh, command="cat src/cart.py | tail -1").result == "    return 7\n"


def test_merging_again_takes_only_what_is_new(placed: Session) -> None:
    a, b = placed.fork("a"), placed.fork("b").use(write, path="n", text="1\n")
    a = a.use(write, path="m", text="1\n").merge(b)
    b = b.use(write, path="n", text="2\n")
    a = a.use(write, path="o", text="1\n").merge(b)
    assert a.files.text("n") == "2\n" and a.files.text("m") == "1\n" and a.files.text("o") == "1\n"
    b = b.merge(a).use(write, path="m", text="3\n")
    a = a.use(write, path="n", text="4\n").merge(b)
    assert a.files.text("m") == "3\n" and a.files.text("n") == "4\n"


def test_blame_names_the_event_behind_a_line(placed: Session) -> None:
    first = placed.use(sh, command="sed -i 's/ + 1//' src/cart.py")
    a = first.fork("a").use(sh, command="echo '# from a' >> src/cart.py")
    b = first.fork("b").use(sh, command="sed -i '1i # from b' src/cart.py")
    merged = a.merge(b)
    lines = list(merged.files.blame("src/cart.py"))
    assert [line.text for line in lines] == [
        "# from b",
        "def total(items):",
        "    return sum(items)",
        "# from a",
    ]
    assert [line.event for line in lines] == [b.head, placed.head, first.head, a.head]
    assert lines[2].tool == "sh" and lines[0].branch == "b"
    assert merged.at(first.seq).files.blame("src/cart.py")[1].event == placed.head


def test_publishing_merges_with_the_folder_as_it_is(placed: Session, repo: Path) -> None:
    used = placed.use(
        sh, command="sed -i 's/ + 1//' src/cart.py; rm README; echo new > new.txt; chmod 700 run.sh"
    )
    (repo / "other.txt").write_text("by hand\n")
    applied = used.files.apply()
    assert (repo / "src" / "cart.py").read_text().endswith("sum(items)\n") and (
        repo / "other.txt"
    ).exists()
    assert not (repo / "README").exists() and (repo / "new.txt").read_text() == "new\n"
    assert (repo / "run.sh").stat().st_mode & 0o777 == 0o700
    again = applied.use(write, path="new.txt", text="newer\n").files.apply()
    assert (repo / "new.txt").read_text() == "newer\n" and (
        repo / "other.txt"
    ).read_text() == "by hand\n"
    (repo / "new.txt").write_text("by hand\n")
    late = again.use(write, path="new.txt", text="newest\n")
    with pytest.raises(MergeConflict, match=r"new\.txt"):
        late.files.apply()
    assert (repo / "new.txt").read_text() == "by hand\n"
    assert late.reload() == late  # nothing was recorded
    late.files.apply(resolve={"new.txt": "both\n"})
    assert (repo / "new.txt").read_text() == "both\n"


def test_an_agent_works_on_files(placed: Session) -> None:
    calls = (
        ToolCall("write", path="a", text="1\n"),
        ToolCall("sh", command="cat a >> b; cat a >> b"),
        ToolCall("read", path="b"),
    )
    model = ScriptedModel([*calls, "done"])
    done = Agent("fix it", model=model, tools=[write, sh, read])(placed)
    assert done.text == "done" and done.files.text("b") == "1\n1\n"
    assert done.at(placed.seq).files.tree == placed.files.tree


class Editing(Workflow):
    """Two edits, a branch, a merge."""

    def __init__(self, where: str) -> None:
        self.where = where

    def forward(self, session: Session) -> Session:
        session = session.to("local", self.where).use(write, path="a", text="1\n")
        branch = session.fork("b").use(sh, command="cat a a > c")
        return session.use(sh, command="echo 2 >> a").merge(branch)


def test_replay_touches_no_files(repo: Path, tmp_path: Path) -> None:
    done = Editing(str(repo))(Session("x", store=tmp_path / "store"))
    assert done.files.text("c") == "1\n1\n" and done.files.text("a") == "1\n2\n"
    (repo / "README").write_text("changed since\n")
    assert replay(done, Editing(str(repo))).head == done.head


def test_a_lost_call_is_undone_and_made_again(repo: Path, tmp_path: Path) -> None:
    """The process ends in the middle of a command that had written already: taken up again, it
    starts from the files before it.
    """
    script = tmp_path / "story.py"
    script.write_text(
        "import os, sys\n"
        "from plait import Session, Workflow, tool\n"
        "from plait.sandbox import Sandbox\n"
        "@tool(effect='workspace')\n"
        "def add(sandbox: Sandbox) -> str:\n"
        "    'Add a line.'\n"
        "    ran = sandbox.exec(['sh', '-c', 'echo line >> log; cat log'])\n"
        "    if os.environ.get('DIE'): os.kill(os.getpid(), 9)\n"
        "    return ran.output.view()\n"
        "class Story(Workflow):\n"
        "    def forward(self, session):\n"
        "        return session.use(add).use(add)\n"
        "if __name__ == '__main__':\n"
        "    Story()(Session('x', store=sys.argv[1]).to('local', sys.argv[2]))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), open_store(tmp_path / "store").address, str(repo)],
        env={**os.environ, "DIE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
    )
    assert done.returncode == -9, done.stderr
    sys.path.insert(0, str(tmp_path))
    try:
        import story  # pyright: ignore[reportMissingImports]

        lost = Session.list(store=tmp_path / "store")[0]
        ended = resume(lost, story.Story())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("story", None)
    assert ended.files.text("log") == "line\nline\n"


def test_bad_places_are_refused_before_anything_is_written(placed: Session, tmp_path: Path) -> None:
    fresh = Session("x", store=tmp_path / "store")
    for refused, error in (
        (lambda: fresh.to("nowhere"), UnknownBackend),
        (lambda: fresh.to("local", tmp_path / "missing"), InvalidValue),
        (lambda: fresh.to("local", network="maybe"), InvalidValue),
        (lambda: fresh.to("local", isolation="hope"), (IsolationMissing, InvalidValue)),
        (lambda: fresh.to("local", limits={"time_s": "long"}), InvalidValue),
        (lambda: fresh.to("local", in_place=True), InvalidValue),
        (lambda: fresh.files.workspace, NotPlaced),
        (lambda: fresh.files.apply(), NotPlaced),
    ):
        with pytest.raises(error):
            refused()
    assert fresh.reload() == fresh
    with pytest.raises(ToolFailed, match="no workspace"):
        fresh.use(read, path="a")


def test_an_empty_place(tmp_path: Path) -> None:
    empty = Session("x", store=tmp_path / "store").to("local")
    assert empty.files.paths() == []
    used = empty.use(sh, command="pwd; ls -A; echo 1 > a")
    assert used.files.text("a") == "1\n"
    assert used.to("local", clean=True).use(sh, command="ls -A").result == "a\n"


def test_in_place_there_is_no_way_back_and_strangers_are_noticed(
    repo: Path, tmp_path: Path
) -> None:
    here = Session("x", store=tmp_path / "store").to("local", repo, in_place=True)
    used = here.use(sh, command="echo 1 > a")
    assert (repo / "a").read_text() == "1\n" and used.files.text("a") == "1\n"
    (repo / "b").write_text("by hand\n")
    on = used.use(sh, command="cat b")
    noticed = [event.body for event in on.events if event.kind == "Bypassed"]
    assert (
        len(noticed) == 1 and isinstance(noticed[0], k.Bypassed) and noticed[0].what == "workspace"
    )
    assert on.files.text("b") == "by hand\n"


def test_a_file_with_a_secret_is_withheld_and_never_lost(repo: Path, tmp_path: Path) -> None:
    secrets.register("s3cr3t-c4n4ry-0815", "CANARY")
    (repo / ".env").write_text("TOKEN=s3cr3t-c4n4ry-0815\n")
    placed = Session("x", store=tmp_path / "store").to("local", repo)
    assert placed.files.workspace.entry(".env").kind == "withheld"
    used = placed.use(sh, command="ls -A; echo 1 > a").files.apply()
    assert (repo / ".env").read_text() == "TOKEN=s3cr3t-c4n4ry-0815\n" and (repo / "a").exists()
    assert used.files.workspace.entry(".env").kind == "withheld"
    leaked = used.use(
        sh, command="printf 's3cr3t-c4n4ry'; printf -- '-0815' ; printf 's3cr3t-c4n4ry-0815' > out"
    )
    assert (
        "s3cr3t" not in str(leaked.result)
        and leaked.files.workspace.entry("out").kind == "withheld"
    )
    assert not [
        path
        for path in (tmp_path / "store").rglob("*.db*")
        if b"s3cr3t-c4n4ry-0815" in path.read_bytes()
    ]


def test_two_processes_on_one_session_have_files_of_their_own(
    placed: Session, tmp_path: Path
) -> None:
    used = placed.use(write, path="a", text="1\n")  # this process keeps its copy at hand
    program = (
        "import sys\nfrom plait import Session\nfrom plait.tools import shell\ns ="
        " Session.open(sys.argv[2], store=sys.argv[1]).use(shell, command='cat a; echo 2 >"
        " a')\nprint(s.files.text('a'))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, placed.store, str(used.id)],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == "2\n\n", done.stderr
    assert used.reload().use(sh, command="cat a").result == "2\n"
    assert not [
        copy for copy in (tmp_path / "store" / "work" / "copies").glob("*.*.*") if copy.is_dir()
    ]


def test_a_call_that_is_left_behind_keeps_its_hands_off(placed: Session) -> None:
    @tool(effect="workspace", timeout_s=0.3)
    def slow(sandbox: Sandbox) -> str:
        """Write, late."""
        sandbox.files.write("early", b"1")
        ended.wait(20)
        sandbox.files.write("late", b"1")
        return "never heard"

    ended = threading.Event()
    with pytest.raises(ToolFailed, match="no outcome") as caught:
        placed.use(slow)
    failed = caught.value.session
    ended.set()
    on = failed.use(sh, command="ls")
    assert on.result == "README\nrun.sh\nsrc\n" and on.files.tree == placed.files.tree


def test_a_tool_that_asks_for_what_it_has_is_told(placed: Session) -> None:
    @tool(effect="workspace")
    def greedy(session: Session, sandbox: Sandbox) -> str:
        """Use another tool in the same sandbox."""
        return str(session.use(read, path="README").result)

    with pytest.raises(ToolFailed, match="has it already"):
        placed.use(greedy)


def test_a_loan_ends_with_the_call(placed: Session) -> None:
    kept: list[Sandbox] = []

    @tool(effect="workspace")
    def keeps(sandbox: Sandbox) -> str:
        """Keep the sandbox."""
        kept.append(sandbox)
        return "kept"

    used = placed.use(keeps)
    with pytest.raises(SandboxFailed, match="is over"):
        kept[0].files.write("a", b"1")
    assert used.files.tree == placed.files.tree


def test_publishing_leaves_alone_what_was_never_the_sessions(repo: Path, tmp_path: Path) -> None:
    """Ignored files, pipes and files with secrets in folders that the session removed, or put
    something else in place of.
    """
    secrets.register("s3cr3t-c4n4ry-4711", "CANARY2")
    (repo / ".plaitignore").write_text("*.bin\n")
    for name in ("data", "other", "conf"):
        (repo / name).mkdir()
        (repo / name / "kept.txt").write_text("x\n")
    (repo / "data" / "big.bin").write_text("precious")
    (repo / "other" / "big.bin").write_text("precious")
    (repo / "conf" / ".env").write_text("TOKEN=s3cr3t-c4n4ry-4711\n")
    placed = Session("x", store=tmp_path / "store").to("local", repo)
    gone = placed.use(sh, command="rm -rf data src").files.apply()
    assert (repo / "data" / "big.bin").read_text() == "precious" and not (
        repo / "data" / "kept.txt"
    ).exists()
    assert not (repo / "src").exists()  # a folder goes with what was in it
    with pytest.raises(NotApplied, match=r"big\.bin"):
        gone.fork().use(sh, command="rm -rf other; ln -s /mnt other").files.apply()
    with pytest.raises(MergeConflict, match="conf"):
        gone.fork().use(sh, command="rm -rf conf").files.apply()
    with pytest.raises(MergeConflict, match="conf"):
        gone.fork().use(sh, command="mkdir -p conf; echo NEW > conf/.env").files.apply()
    assert (repo / "other" / "big.bin").exists() and (
        repo / "conf" / ".env"
    ).read_text().startswith("TOKEN")
    chosen = gone.fork().use(sh, command="mkdir -p conf; echo NEW > conf/.env")
    chosen.files.apply(resolve={"conf/.env": "NEW\n"})
    assert (repo / "conf" / ".env").read_text() == "NEW\n"


def test_what_was_published_is_the_tree(placed: Session, repo: Path) -> None:
    command = (
        "mv src lib; chmod 700 lib; mkdir -p deep/er; rm run.sh; mkdir run.sh; echo x > run.sh/x;"
        " rm README; ln -s lib README"
    )
    used = placed.use(sh, command=command).files.apply()
    assert used.fork().to("local", repo).files.tree == used.files.tree
    back = used.use(sh, command="rm -r run.sh; echo '#!/bin/sh' > run.sh").files.apply()
    assert back.fork().to("local", repo).files.tree == back.files.tree
    undone = back.rewind(
        placed.seq
    ).files.apply()  # what was published is not forgotten by a rewind
    assert (
        undone.files.tree == placed.files.tree
        and undone.fork().to("local", repo).files.tree == placed.files.tree
    )


def test_an_edit_during_publishing_is_not_overwritten(
    placed: Session, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = placed.use(sh, command="for n in 1 2 3 4 5; do echo $n > f$n; done; echo new > README")
    replace = LocalFiles.replace

    def late(self: LocalFiles, *args: Any) -> None:
        replace(self, *args)
        (repo / "README").write_text("by hand\n")

    (repo / "f5").write_text("5\n")
    monkeypatch.setattr(LocalFiles, "replace", late)
    with pytest.raises(ToolFailed, match="README"):
        # README is written last or first; whatever is written before it, the edit comes in between
        used.use(sh, command="echo a > A; echo newer > README").files.apply()
    assert (repo / "README").read_text() == "by hand\n"


def test_of_two_that_change_files_at_once_one_is_told(placed: Session, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom plait import Session\nfrom plait.tools import shell\n"
        "s = Session.open(sys.argv[2], store=sys.argv[1])\nprint(s.seq, flush=True)\n"
        "sys.stdin.readline()\ns.use(shell, command='echo other > other')\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    begun, go = threading.Event(), threading.Event()

    @tool(effect="workspace")
    def slow(sandbox: Sandbox) -> str:
        """Write, after somebody else did."""
        begun.set()
        go.wait(60)
        sandbox.files.write("mine", b"1")
        return "written"

    outcome: list[BaseException] = []

    def work() -> None:
        try:
            placed.use(slow)
        except ToolFailed as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(60)
    command = [sys.executable, "-c", program, placed.store, str(placed.id)]
    done = subprocess.run(command, env=environ, input="go\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    go.set()
    thread.join(60)
    assert len(outcome) == 1 and "StaleFiles" in str(outcome[0])
    now = placed.reload()
    assert "other" in now.files.workspace and "mine" not in now.files.workspace
    assert now.use(sh, command="ls").result == "README\nother\nrun.sh\nsrc\n"


def test_a_revert_between_two_merges_is_no_silence(placed: Session) -> None:
    a = placed.fork("a2").use(write, path="f", text="A\n")
    b = placed.fork("b2").merge(a).use(sh, command="rm f")
    later = a.fork("later").use(write, path="f", text="B\n")
    with pytest.raises(MergeConflict):
        b.merge(later)
    # who left it alone does not bring it back
    assert "f" not in b.merge(a.fork("other").use(write, path="g", text="1\n")).files.workspace


def test_a_fact_and_a_file_of_one_name(placed: Session) -> None:
    a = placed.fork("a").fact("k", 1).use(write, path="k", text="A\n")
    b = placed.fork("b").fact("k", 2).use(write, path="k", text="B\n")
    with pytest.raises(MergeConflict) as caught:
        a.merge(b, resolve={"k": 7})
    assert set(caught.value.conflicts) == {"k"} and "A\n" in caught.value.conflicts["k"].values()
    both = a.merge(b, resolve={"k": 7, "(workspace)/k": "C\n"})
    assert both.facts["k"] == 7 and both.files.text("k") == "C\n"


def test_what_a_command_writes_is_heard_as_it_runs(placed: Session) -> None:
    class Loud(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(sh, command="echo one; echo two")

    heard: list[object] = []
    done = Loud()(placed, on_event=heard.append)
    assert "".join(item.output for item in heard if isinstance(item, OutputDelta)) == "one\ntwo\n"
    assert done.result == "one\ntwo\n"


def test_placed_again_it_goes_on_as_it_was(repo: Path, tmp_path: Path) -> None:
    first = Session("x", store=tmp_path / "store").to(
        "local", repo, env={"A": "1"}, limits=Limits(time_s=30), isolation="bubblewrap"
    )
    clean = first.to("local", clean=True)
    assert (
        clean.use(sh, command="echo $A").result == "1\n"
        and clean.files.placement
        and clean.files.placement.rung == "bubblewrap"
    )
    for wrong in (
        {"bogus": 1},
        {"limits": {"tme_s": 3}},
        {"limits": Limits(time_s=-1)},
        {"env": ["NOT_SET_ANYWHERE"]},
    ):
        with pytest.raises(InvalidValue):
            first.to("local", **wrong)  # pyright: ignore[reportArgumentType]


def test_in_place_forks_share_the_folder_and_blame_knows_strangers(
    repo: Path, tmp_path: Path
) -> None:
    here = (
        Session("x", store=tmp_path / "store")
        .to("local", repo, in_place=True)
        .use(sh, command="echo 1 > a")
    )
    (repo / "other").write_text("by hand\n")
    fork = here.fork("q").use(sh, command="cat other")
    assert fork.result == "by hand\n" and fork.files.blame("other")[1].kind == "Bypassed"


@pytest.mark.parametrize("gone", ["", "copies", "bases"])
def test_an_emptied_cache_heals(placed: Session, gone: str) -> None:
    """What lies on disk is a cache: without it a call fails, and the next one has
    everything again.
    """
    used = placed.use(write, path="b", text="2\n")
    shutil.rmtree(cache_folder(store_at(placed.store)) / gone)
    for _ in range(3):
        try:
            used = used.use(sh, command="cat README b; echo 3 > c")
            break
        except ToolFailed as error:
            used = error.session
    assert (
        used.result == "a shop\n2\n"
        and used.files.text("c") == "3\n"
        and used.files.text("b") == "2\n"
    )


def test_a_forked_child_leaves_the_parents_files_alone(placed: Session) -> None:
    used = placed.use(write, path="a", text="1\n")
    program = "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\n"
    script = (
        "import sys\nfrom plait import Session\nfrom plait.tools import shell\n"
        "s = Session.open(sys.argv[2], store=sys.argv[1]).use(shell, command='cat a')\n"
        + program
        + "print(s.use(shell, command='cat a').result, end='')\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", script, placed.store, str(used.id)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr


def test_a_revert_is_seen_over_two_bases(placed: Session) -> None:
    """Two branches that both took a third one in, and one of them the other: what is taken back
    stays taken back, or is in dispute.
    """
    begun = placed.use(write, path="f", text="base\n")
    zero, one, two = (begun.fork(name) for name in ("zero", "one", "two"))
    two = two.use(write, path="f", text="A\n")
    one = one.use(write, path="g", text="1\n")
    zero = zero.merge(two).merge(one)
    two = two.merge(one)
    reverted = zero.fork("reverted").use(write, path="f", text="base\n")
    assert two.fork("same").merge(reverted).files.text("f") == "base\n"
    with pytest.raises(MergeConflict, match="f"):
        two.fork("edited").use(write, path="f", text="B\n").merge(reverted)
    with pytest.raises(MergeConflict, match="f"):
        two.fork("removed").use(sh, command="rm f").merge(reverted)
    assert two.fork("edited2").use(write, path="f", text="B\n").merge(zero).files.text("f") == "B\n"


def test_branches_merged_at_once_know_of_each_other(placed: Session) -> None:
    begun = placed.use(write, path="f", text="0\n")
    b = begun.fork("b").use(write, path="f", text="B\n")
    c = begun.fork("c").merge(b).use(write, path="f", text="0\n")
    assert begun.fork("all").merge(b, c).files.text("f") == "0\n"


def test_whose_file_with_a_secret_it_is_can_be_chosen(repo: Path, tmp_path: Path) -> None:
    secrets.register("s3cr3t-c4n4ry-1234", "CANARY3")
    (repo / ".env").write_text("TOKEN=s3cr3t-c4n4ry-1234\n")
    (repo / "config.py").write_text("plain\n")
    used = (
        Session("x", store=tmp_path / "store")
        .to("local", repo)
        .use(write, path=".env", text="session\n")
    )
    with pytest.raises(MergeConflict) as caught:
        used.files.apply()
    shown = caught.value.conflicts[".env"]["the folder"]
    used.fork().files.apply(resolve={".env": shown})
    assert (repo / ".env").read_text() == "TOKEN=s3cr3t-c4n4ry-1234\n"
    used.fork().files.apply(resolve=lambda path, sides: sides["the folder"])
    assert (repo / ".env").read_text() == "TOKEN=s3cr3t-c4n4ry-1234\n"
    leaking = used.fork().use(write, path="config.py", text="KEY = 's3cr3t-c4n4ry-1234'\n")
    leaking.files.apply(resolve={".env": "chosen\n"})
    assert (repo / ".env").read_text() == "chosen\n" and (
        repo / "config.py"
    ).read_text() == "plain\n"


def test_what_the_rules_leave_out_is_not_published(repo: Path, tmp_path: Path) -> None:
    (repo / "k.log").write_text("by hand\n")
    (repo / "cache").mkdir()
    (repo / "cache" / "u").write_text("by hand\n")
    begun = Session("x", store=tmp_path / "store")
    here = begun.fork("a").to("local", repo, ignore=["*.log", "cache"])
    there = (
        begun.fork("b")
        .to("local")
        .use(sh, command="echo S > k.log; mkdir cache; echo S > cache/u; echo S > ok")
    )
    here.merge(there).files.apply()
    assert (repo / "k.log").read_text() == (repo / "cache" / "u").read_text() == "by hand\n" and (
        repo / "ok"
    ).exists()


def test_what_came_into_the_way_is_not_overwritten(placed: Session, repo: Path) -> None:
    os.mkfifo(repo / "L")
    with pytest.raises((ToolFailed, NotApplied)):
        placed.fork().use(sh, command="ln -s README L").files.apply()
    assert (repo / "L").is_fifo()


def test_what_one_branch_published_the_other_knows_after_a_merge(
    placed: Session, repo: Path
) -> None:
    a = placed.fork("a").use(write, path="n", text="1\n").files.apply().use(sh, command="rm n")
    placed.fork("b").merge(a).files.apply()
    assert not (repo / "n").exists()


def test_a_command_that_is_left_running_is_no_outcome(placed: Session) -> None:
    started = threading.Event()

    @tool(effect="workspace")
    def careless(sandbox: Sandbox) -> str:
        """Return while a command runs."""
        command = ["sh", "-c", "echo up; sleep 1; echo late > late"]
        threading.Thread(
            target=lambda: sandbox.exec(command, on_output=lambda _: started.set())
        ).start()
        started.wait(30)
        return "done"

    with pytest.raises(ToolFailed, match="still runs") as caught:
        placed.use(careless)
    assert caught.value.session.use(sh, command="sleep 2; ls").result == "README\nrun.sh\nsrc\n"


def test_what_a_tool_may_do_with_a_loan(placed: Session) -> None:
    @tool(effect="workspace")
    def busy(sandbox: Sandbox) -> str:
        """Do what there is to do."""
        before = sandbox.snapshot().tree
        sandbox.files.make_folder("d")
        sandbox.files.write("d/x", b"1")
        sandbox.files.chmod("d/x", 0o600)
        sandbox.files.link("d/l", "x")
        names = [entry.name for entry in sandbox.files.list("d")]
        assert (
            names == ["l", "x"]
            and sandbox.files.entry("d/x").mode == 0o600
            and sandbox.files.read("d/l") == b"1"
        )
        sandbox.files.remove("d")
        sandbox.pause()
        sandbox.resume()
        sandbox.renew(10)
        sandbox.files.write("y", b"1")
        sandbox.restore(before)
        part = sandbox.keep(sandbox.exec(["sh", "-c", "echo kept"]).output, "kept.txt")
        with pytest.raises(SandboxFailed):
            sandbox.destroy()
        sandbox.close()
        sandbox.begin()
        assert sandbox.workdir and sandbox.placement.rung
        with pytest.raises(InvalidValue):
            sandbox.exec("ls")
        return part.name

    used = placed.use(busy)
    assert used.result == "kept.txt" and used.files.tree == placed.files.tree
