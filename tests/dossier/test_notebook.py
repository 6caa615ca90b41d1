"""Values in a notebook: static, small, escaped; and the notebook of the docs, executed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, open_store
from plait.dossier.notebook import watch
from plait.errors import InvalidValue
from tests.dossier.documents import PageElements
from tests.outline.programs import hostile_texts
from tests.outline.sessions import ViewStore
from tests.support import ROOT, word_count

TAGS = set("div style p b table tr td svg path circle span code pre".split())
SIZE_MAX = 24_000


def shown_values(made: ViewStore, name: str) -> Iterator[Any]:
    """Yield every sort of value that a notebook draws."""
    session = made.session(name)
    yield session
    yield session.at(3).diff(session)
    yield session.lineage.graph()
    yield session.why(session.events[-1])
    if session.files.tree is not None and session.files.paths():
        yield session.files.blame(session.files.paths()[0])


@pytest.mark.parametrize("name", ["repair", "hostile", "remembered", "killed", "rewound"])
def test_values_are_small_and_do_nothing(made: ViewStore, name: str) -> None:
    for value in shown_values(made, name):
        html = value._repr_html_()
        assert html and len(html) < SIZE_MAX
        found = PageElements(html)
        assert set(found.tags) <= TAGS
        assert found.attributes <= set("class width height aria-hidden focusable d cx cy r".split())
        assert found.links == []
        assert "prefers-color-scheme:dark" in html and "data-jp-theme-light" in html


def test_hostile_texts_are_shown(made: ViewStore) -> None:
    session = made.session("hostile")
    diff: Any = session.at(3).diff(session)
    shown = PageElements(diff._repr_html_()).text
    assert sum([each in shown for each in hostile_texts() if each.isascii()]) >= 3


def test_a_session_says_what_it_is(made: ViewStore) -> None:
    session: Any = made.session("repair")
    text = PageElements(session._repr_html_()).text
    for words in ("negative total", "finished", "1,280 tokens", "$0.0016", "tests passed", "clamp"):
        assert words in text
    unknown: Any = made.session("resumed")
    assert "price not known" in PageElements(unknown._repr_html_()).text


def test_a_value_that_cannot_be_read_is_told_by_its_text() -> None:
    session: Any = Session("Hello.", store="memory:notebook")
    assert "Hello." in PageElements(session._repr_html_()).text
    open_store("memory:notebook").close()  # a store in memory is gone with that
    assert session._repr_html_() is None
    assert repr(session).startswith("<Session ")


def test_a_run_is_watched_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ScriptedModel([ToolCall("word_count", text="a b"), "Two."])
    agent = Agent("Count.", model=model, tools=[word_count])
    started = Session("How many?", store=tmp_path / "store")
    session = watch(agent.stream(started, events=True))
    assert session.text == "Two." and session.id == started.id
    told = capsys.readouterr().out
    assert "word_count" in told and "Two." in told
    with pytest.raises(InvalidValue, match=r"agent\.stream"):
        watch(iter(()))


@pytest.mark.long
def test_the_notebook_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PLAIT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    book: Any = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    client: Any = nbclient.NotebookClient(
        book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    asyncio.run(client.async_execute())
    outputs = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    html = ["".join(each.get("data", {}).get("text/html", "") for each in out) for out in outputs]
    assert all('class="plait"' in each for each in html)
    progress, session, diff, graph, trace = map(PageElements, html)
    assert "word_count" in progress.text and "Six words." in progress.text
    assert "Session" in session.text and "count passed" in session.text
    assert "There are six words." in diff.text
    assert "3 sessions" in graph.text and "word_count" in trace.text
