"""The scoreboard: its rows, their scripts, the kept results and the page are one."""

from __future__ import annotations

import json
import os
import runpy
from typing import Any

from tests.support import ROOT

BOARD = runpy.run_path(str(ROOT / "scoreboard" / "board.py"))


def results() -> list[dict[str, Any]]:
    return json.loads((ROOT / "docs" / "scoreboard.json").read_text())["rows"]


def test_each_of_24_rows_has_a_script() -> None:
    rows = BOARD["read_rows"]()
    assert [row.number for row in rows] == [*range(1, 25)]
    scripts = sorted(path.name for path in (ROOT / "scoreboard").glob("[0-9]*"))
    assert [row.script for row in rows] == scripts
    assert all(os.access(ROOT / "scoreboard" / script, os.X_OK) for script in scripts)
    for row in rows:
        text = (ROOT / "scoreboard" / row.script).read_text()
        assert f'print_row({row.number}, "{row.system}", check)' in text


def test_the_kept_results_are_those_of_the_rows() -> None:
    rows = {row.number: row for row in BOARD["read_rows"]()}
    assert [each["number"] for each in results()] == [*rows]
    words = {0: "works: ", 1: ("missing: ", "fails: "), 77: "not tried: "}
    for each in results():
        row = rows[each["number"]]
        assert (each["system"], each["counts"]) == (row.system, row.counts)
        assert each["result"].startswith(words[each["code"]]), each
        assert 0 < each["seconds"] <= row.s_max + 10


def test_the_page_is_made_of_the_results() -> None:
    page = (ROOT / "docs" / "scoreboard.md").read_text()
    assert page == BOARD["render_page"](results()), (
        "run `make scoreboard`, and edit no page by hand"
    )
