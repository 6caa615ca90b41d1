"""The folder of a dossier: its files, its schema, the program that checks it, and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from base64 import b85decode, b85encode
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from plait import Session
from plait.dossier.making import encode_dossier
from plait.dossier.shapes import Dossier, dossier_schema
from plait.dossier.writing import write_dossier
from plait.errors import FileUnwritten
from plait.view.html import BuiltPage
from tests.cli.shell import Shell
from tests.dossier.documents import NOW, PAGE, bytes_in, dossier_of, names_in
from tests.outline.sessions import ViewStore

FILES = ["dossier.html", "dossier.json", "run.html"]


def check_document(document: Any) -> None:
    """Raise if a document does not have the schema of dossiers."""
    validator: Any = jsonschema.Draft202012Validator(dossier_schema())
    validator.validate(document)


def test_it_has_three_files_and_is_the_same_again(made: ViewStore, tmp_path: Path) -> None:
    session = made.session("repair")
    written = write_dossier(session, tmp_path / "one", made=NOW, page=PAGE)
    assert names_in(tmp_path / "one") == FILES == list(written.files)
    assert (written.is_verified, written.head, written.left_out) == (True, session.head, ())
    write_dossier(session, tmp_path / "two", made=NOW, page=PAGE)
    later = NOW + 60_000_000
    write_dossier(session, tmp_path / "later", made=later, page=PAGE)
    for name in FILES:
        content = (tmp_path / "one" / name).read_bytes()
        assert (tmp_path / "two" / name).read_bytes() == content
        assert len(content) == written.files[name]
    one, other = ((tmp_path / each / "dossier.json").read_text() for each in ("one", "later"))
    assert one.replace(f'"made":{NOW}', f'"made":{later}') == other


@pytest.mark.parametrize("name", ["repair", "remembered", "resolved", "hostile", "large", "killed"])
def test_the_document_has_its_schema(made: ViewStore, name: str) -> None:
    dossier = dossier_of(made, name)
    data = encode_dossier(dossier)
    check_document(json.loads(data))
    again = msgspec.json.decode(data, type=Dossier)
    assert encode_dossier(again) == data


def test_the_schema_refuses_another_document(made: ViewStore) -> None:
    document: dict[str, Any] = json.loads(encode_dossier(dossier_of(made, "fresh")))
    del document["check"]
    with pytest.raises(jsonschema.ValidationError, match="check"):
        check_document(document)


# ── the program that checks it ───────────────────────────────────────────────────────────────


def checked(document: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program of a dossier on it, with nothing but Python."""
    (folder / "dossier.json").write_text(json.dumps(document))
    (folder / "check.py").write_text(document["check"]["program"])
    command = [sys.executable, "-I", "-S", "check.py", "dossier.json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["repair", "rewound", "hostile"])
def test_anybody_can_check_it(made: ViewStore, tmp_path: Path, name: str) -> None:
    document = json.loads(encode_dossier(dossier_of(made, name)))
    events = document["check"]["record"]["events"]
    found = checked(document, tmp_path)
    assert found.returncode == 0, found.stderr
    assert f"{events} events and {events} contents" in found.stdout
    assert made.session(name).head in found.stdout


def test_the_program_finds_every_change(made: ViewStore, tmp_path: Path) -> None:
    document = json.loads(encode_dossier(dossier_of(made, "answered")))
    record = document["check"]["record"]
    lines = zlib.decompress(b85decode(record["data"])).decode().splitlines()

    def with_lines(changed: list[str]) -> subprocess.CompletedProcess[str]:
        data = b85encode(zlib.compress("\n".join(changed).encode())).decode()
        other = {**document["check"], "record": {**record, "data": data}}
        return checked({**document, "check": other}, tmp_path)

    assert with_lines(lines).returncode == 0
    for at, line in enumerate(lines):
        raw, salt, body = json.loads(line)
        for changed in (
            [raw, salt, body.replace("}", " }", 1)],
            [raw.replace('"time":1', '"time":2', 1), salt, body],
            [raw, "00" * (len(salt) // 2), body],
        ):
            found = with_lines([*lines[:at], json.dumps(changed), *lines[at + 1 :]])
            assert found.returncode == 1 and found.stderr.startswith(document["session"]["id"])
    assert "one event is missing before it" in with_lines([*lines[:3], *lines[4:]]).stderr
    assert "does not end with its head" in with_lines(lines[:-1]).stderr
    # a second event at a place, contents that were taken out, a log without a head
    raw, salt, body = json.loads(lines[2])
    twin = json.dumps([raw.replace('"time":1', '"time":2', 1), salt, body])
    assert "is there twice" in with_lines([*lines[:3], twin, *lines[3:]]).stderr
    bare = [json.dumps([json.loads(line)[0], "", None]) for line in lines]
    assert "contents are missing" in with_lines(bare).stderr
    headless: dict[str, Any] = {**document["check"], "record": {**record, "heads": []}}
    assert "has no head" in checked({**document, "check": headless}, tmp_path).stderr


def test_a_record_that_is_not_there_is_said(made: ViewStore, tmp_path: Path) -> None:
    document = json.loads(encode_dossier(dossier_of(made, "answered")))
    record = {**document["check"]["record"], "data": "", "is_whole": False}
    found = checked({**document, "check": {**document["check"], "record": record}}, tmp_path)
    assert found.returncode == 1 and "plait verify" in found.stderr


# ── where it is written ──────────────────────────────────────────────────────────────────────


def test_it_replaces_its_own_files_and_no_others(made: ViewStore, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    write_dossier(made.session("fresh"), folder, made=NOW, page=PAGE)
    (folder / "notes.txt").write_text("mine")
    written = write_dossier(made.session("repair"), folder, made=NOW, page=PAGE)
    assert (folder / "dossier.json").stat().st_size == written.files["dossier.json"]
    assert (folder / "notes.txt").read_text() == "mine"
    # without the page of the run, that of another session must not stay
    write_dossier(made.session("closed"), folder, made=NOW, with_run=False)
    assert names_in(folder) == ["dossier.html", "dossier.json", "notes.txt"]


@pytest.mark.parametrize("name", FILES)
def test_a_foreign_file_is_left_alone(made: ViewStore, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("somebody's own")
    before = bytes_in(tmp_path)
    with pytest.raises(FileUnwritten, match="no dossier wrote it. Name another place") as refused:
        write_dossier(made.session("fresh"), tmp_path, made=NOW, page=PAGE)
    assert refused.value.path == str(tmp_path / name)
    assert bytes_in(tmp_path) == before


def test_links_and_other_things_are_not_followed(made: ViewStore, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dossier.html").symlink_to(tmp_path / "target")
    with pytest.raises(FileUnwritten, match="no dossier wrote it"):
        write_dossier(made.session("fresh"), tmp_path / "a", made=NOW, page=PAGE)
    assert (tmp_path / "target").read_text() == "mine"
    with pytest.raises(FileUnwritten, match="a dossier is a folder"):
        write_dossier(made.session("fresh"), tmp_path / "target", made=NOW, page=PAGE)
    with pytest.raises(FileUnwritten, match="there is no folder"):
        write_dossier(made.session("fresh"), tmp_path / "no" / "such", made=NOW, page=PAGE)
    assert not (tmp_path / "no").exists()


def test_a_full_disk_leaves_the_earlier_dossier(
    made: ViewStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dossier(made.session("fresh"), tmp_path, made=NOW, page=PAGE)
    before = bytes_in(tmp_path)
    whole = Path.write_bytes

    def write_some(path: Path, data: bytes) -> int:
        if "dossier.html" in path.name:
            raise OSError(28, "No space left on device")
        return whole(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_some)
    with pytest.raises(FileUnwritten, match="No space left"):
        write_dossier(made.session("repair"), tmp_path, made=NOW, page=PAGE)
    assert bytes_in(tmp_path) == before


def test_without_a_built_page_it_goes_on_and_says_so(
    made: ViewStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = BuiltPage.read
    monkeypatch.setattr(BuiltPage, "read", lambda: built(tmp_path / "nothing"))
    written = write_dossier(made.session("fresh"), tmp_path / "evidence", made=NOW)
    assert names_in(tmp_path / "evidence") == ["dossier.html", "dossier.json"]
    assert len(written.left_out) == 1 and "run.html" in written.left_out[0]
    assert 'href="run.html"' not in (tmp_path / "evidence" / "dossier.html").read_text()


# ── in the shell ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    Session("Count the words.", title="words", store=tmp_path / ".plait").fact("a", 1)
    return Shell(tmp_path / ".plait")


def test_the_command_names_the_files(shell: Shell, tmp_path: Path) -> None:
    told = shell("dossier", "@", "-o", "evidence", "--no-run")
    assert [line.split()[0] for line in told.splitlines()] == [
        "evidence/dossier.html",
        "evidence/dossier.json",
    ]
    found = shell.json("dossier", "@", "-o", "evidence", "--no-run")
    assert found["is_verified"] and found["status"] == "open"
    assert [line.partition(":")[0] for line in found["notices"]] == ["open"]
    document = json.loads((tmp_path / "evidence" / "dossier.json").read_text())
    assert document["title"] == "words"
    early = shell.json("dossier", "@@1", "-o", "early", "--no-run")
    assert [line.partition(":")[0] for line in early["notices"]] == ["open", "past"]


def test_the_command_prints_the_schema(shell: Shell) -> None:
    assert json.loads(shell("dossier", "--schema")) == json.loads(json.dumps(dossier_schema()))


def test_the_command_refuses(shell: Shell, tmp_path: Path) -> None:
    assert "plait dossier S -o DIR" in shell.error(2, "dossier", "@")
    assert "nothing" in shell.error(3, "dossier", "nothing", "-o", "evidence")
    assert not (tmp_path / "evidence").exists()
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "dossier.html").write_text("mine")
    refused = shell.error(1, "dossier", "@", "-o", "evidence", "--no-run")
    assert "no dossier wrote it" in refused
