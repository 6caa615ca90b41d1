"""The page in one file: what it has, what it says, and that it answers as a server does."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plait import Session
from plait.errors import FileUnwritten, InvalidValue, PageMissing, PlaitError
from plait.outline.details import step_detail
from plait.outline.family import family_shape
from plait.outline.files import blame_shape, file_shape, files_diff, folder_shape
from plait.outline.steps import step_page
from plait.outline.track import track_shape
from plait.server.desk import ServerDesk
from plait.server.feed import Feed
from plait.server.params import AboutParams, EventsParams, SessionParams
from plait.server.reading import read_events
from plait.server.tracing import read_prompt, read_why
from plait.view.chunks import Chunks
from plait.view.contents import FILE_MAX
from plait.view.file import write_file
from plait.view.html import BuiltPage
from tests.outline.sessions import ViewStore
from tests.support import ROOT

PAGE = BuiltPage("console.log(1)", "body { color: red }", b"<svg/>")
VIEWER = ROOT / "viewer"


def pieces_of(path: Path) -> dict[str, Any]:
    """Return the pieces of a file by name, with the digests put back."""
    found = dict(re.findall(r'data-name="([^"]+)">([^<]*)<', path.read_text()))
    table = b"".join(
        b64decode(found[f"digests/{at}"])
        for at in range(sum(name.startswith("digests/") for name in found))
    )

    def digest(match: re.Match[str]) -> str:
        at = int(match[1], 36) * 32
        return f'"{table[at : at + 32].hex()}"'

    def unpack(text: str) -> Any:
        plain = gzip.decompress(b64decode(text)).decode()
        return json.loads(
            re.sub(r'(?<!\\)"~~', '"~', re.sub(r'(?<!\\)"~([0-9a-z]+)"', digest, plain))
        )

    return {name: unpack(text) for name, text in found.items() if not name.startswith("digests/")}


# ── the document ─────────────────────────────────────────────────────────────────────────────


def test_it_says_what_it_is_a_copy_of(made: ViewStore, tmp_path: Path) -> None:
    session = made.session("repair")
    written = write_file(session, tmp_path / "run.html", made=17, page=PAGE)
    head = pieces_of(tmp_path / "run.html")["head/0"]
    assert head["place"] == [session.id, session.seq]
    assert (head["made"], head["head"], head["other"]) == (17, session.head, None)
    assert written.size == (tmp_path / "run.html").stat().st_size
    assert head["verify"]["ok"] is True


def test_its_policy_lets_only_its_own_script_and_style_run(made: ViewStore, tmp_path: Path) -> None:
    write_file(made.session("hostile"), tmp_path / "run.html", made=0, page=PAGE)
    text = (tmp_path / "run.html").read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text)
    for inline in (script, style):
        assert b64encode(sha256(inline.encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    # what was said stands in packed pieces alone, but for the title
    assert "<script>alert" not in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)


def test_places_are_chosen_by_a_session_at_a_place_and_by_two(
    made: ViewStore, tmp_path: Path
) -> None:
    session = made.session("repair")
    left, right = (Session.open(name, store=made.store) for name in ("reject", "clamp"))
    write_file(session.at(12), tmp_path / "one.html", made=0, page=PAGE)
    write_file(left, tmp_path / "two.html", made=0, other=right, page=PAGE)
    assert pieces_of(tmp_path / "one.html")["head/0"]["place"] == [session.id, 12]
    two = pieces_of(tmp_path / "two.html")
    assert two["head/0"]["other"] == [right.id, right.seq]
    assert f"{left.id}@{left.seq}..{right.id}@{right.seq}" in two["comparisons/0"]


@pytest.mark.parametrize(
    ("subject", "piece"),
    [("files", "folders/0"), ("prompts", "prompts/0"), ("blobs", "images/0")],
)
def test_a_subject_may_be_left_out(
    made: ViewStore, tmp_path: Path, subject: str, piece: str
) -> None:
    path = tmp_path / "run.html"
    write_file(made.session("repair"), path, made=0, page=PAGE)
    assert piece in pieces_of(path)
    written = write_file(made.session("repair"), path, made=0, page=PAGE, without=[subject])
    assert piece not in pieces_of(path)
    assert f"all {subject}" in written.left_out


def test_a_large_file_is_named_as_left_out(made: ViewStore, tmp_path: Path) -> None:
    written = write_file(made.session("large"), tmp_path / "run.html", made=0, page=PAGE)
    assert any("bytes" in line for line in written.left_out)


def test_texts_that_look_like_numbers_of_digests_come_back(tmp_path: Path) -> None:
    chunks, digest = Chunks(), "ab" * 32
    texts = ["~", "~~", "~0", "~0 ", 'a "~0" b', '"~0"', "\\", '\\"~0"', digest, digest + "0", ""]
    chunks.add("head/0", texts)
    (tmp_path / "page.html").write_text("\n".join(chunks.elements()))
    assert pieces_of(tmp_path / "page.html")["head/0"] == texts


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


def test_without_a_built_page_nothing_is_written(made: ViewStore, tmp_path: Path) -> None:
    with pytest.raises(PageMissing, match="make viewer"):
        BuiltPage.read(tmp_path / "no such folder")


def test_a_page_of_several_scripts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    for name in ("a.js", "b.js"):
        (tmp_path / "assets" / name).write_text("1")
    (tmp_path / "index.html").write_text('<script type="module" src="/assets/a.js"></script>')
    with pytest.raises(PageMissing):
        BuiltPage.read(tmp_path)


def test_a_script_that_names_its_own_end_does_not_end_there(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.js").write_text("show('</script><!--')")
    (tmp_path / "index.html").write_text('<script type="module" src="/assets/a.js"></script>')
    assert BuiltPage.read(tmp_path).script == "show('<\\/script><\\!--')"


def test_a_place_that_cannot_be_written_is_named(made: ViewStore, tmp_path: Path) -> None:
    with pytest.raises(FileUnwritten, match="-o"):
        write_file(made.session("fresh"), tmp_path / "no" / "run.html", made=0, page=PAGE)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_subject_is_refused(made: ViewStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="prompts"):
        write_file(
            made.session("fresh"), tmp_path / "run.html", made=0, page=PAGE, without=["jokes"]
        )
    assert list(tmp_path.iterdir()) == []


# ── the answers of the page ──────────────────────────────────────────────────────────────────


def needs_viewer() -> None:
    """Skip if the packages of the page are not installed (`make viewer`)."""
    if shutil.which("node") and (VIEWER / "node_modules" / "vitest").is_dir():
        return
    if os.environ.get("PLAIT_REQUIRE_VIEWER"):
        pytest.fail("the packages of the page are not installed: make viewer")
    pytest.skip("the packages of the page are not installed: make viewer")


class Questions:
    """Asks a server everything about a family that a page may ask."""

    def __init__(self, made: ViewStore, session: Session) -> None:
        self._store, self._session = made.store, session
        self._desk = ServerDesk(made.store, "", Feed(made.store), None, read_only=True)

    def answers(self) -> Iterator[dict[str, Any]]:
        for branch in family_shape(self._desk.outlines, self._session.id).branches:
            log = branch.log
            yield from self._ask(
                "steps", [log, 0, 100], step_page, self._desk.outlines, log, 0, 100
            )
            trees = list[Any]()
            for seq in range(branch.place + 1, branch.tip + 1):
                yield from self._at_place(log, seq, trees)
            events = EventsParams(log=log, first=1, count=500)
            yield from self._ask("events", [log, 1, 500], read_events, self._desk, events)

    def _at_place(self, log: Any, seq: int, trees: list[Any]) -> Iterator[dict[str, Any]]:
        place = f"{log}@{seq}"
        yield from self._ask("detail", [log, seq], step_detail, self._desk.outlines, log, seq)
        yield from self._ask("track", [log, seq], track_shape, self._store, log, seq)
        about = AboutParams(session=place)
        yield from self._ask("why", [place, ""], read_why, self._desk, about)
        asked = SessionParams(session=place)
        yield from self._ask("prompt", [place], read_prompt, self._desk, asked)
        value = Session.open(place, store=self._store)
        if (tree := value.files.tree) is None:
            return
        yield from self._ask("folder", [tree, ""], folder_shape, self._store, tree, "")
        for path in value.files.paths()[:6]:
            shape = file_shape(self._store, tree, path)
            if shape.form == "text" and shape.size <= FILE_MAX:
                yield from self._ask("blame", [place, path], blame_shape, value, path)
                yield from self._ask("file", [tree, path], file_shape, self._store, tree, path)
        for other in trees[:6]:
            yield from self._ask("diff", [other, tree], files_diff, self._store, other, tree)
        if tree not in trees:
            trees.append(tree)

    def _ask(
        self, method: str, args: list[Any], answer: Callable[..., Any], *given: Any
    ) -> Iterator[dict[str, Any]]:
        try:
            found = answer(*given)
        except PlaitError:  # there is no such thing at this place
            return
        yield {"method": method, "args": args, "answer": json.loads(msgspec.json.encode(found))}


@pytest.mark.ci
@pytest.mark.parametrize("name", ["repair", "rewound", "remembered", "large", "debate", "hostile"])
def test_it_answers_as_a_server_does(made: ViewStore, tmp_path: Path, name: str) -> None:
    needs_viewer()
    session = made.session(name)
    write_file(session, tmp_path / "run.html", made=0, page=PAGE)
    questions = list(Questions(made, session).answers())
    (tmp_path / "expected.json").write_text(json.dumps(questions))
    done = subprocess.run(
        ["npx", "vitest", "run", "test/file_source.test.ts"],
        cwd=VIEWER,
        env={
            **os.environ,
            "PLAIT_VIEW_FILE": str(tmp_path / "run.html"),
            "PLAIT_VIEW_EXPECTED": str(tmp_path / "expected.json"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "compared {" in done.stdout, done.stdout[-3000:] + done.stderr
