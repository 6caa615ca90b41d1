"""The scoreboard: runs the rows one after another, prints their lines, and keeps the results.

`python scoreboard/board.py` runs all rows, `python scoreboard/board.py 5 14` these two. Results are
in docs/scoreboard.json; docs/scoreboard.md is made of them. The exit code is 1 if a row that was
run is not green and could be tried.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS, PAGE = ROOT / "docs" / "scoreboard.json", ROOT / "docs" / "scoreboard.md"
MEANINGS = {0: "works", 1: "does not", 77: "not tried"}

_HEAD = """# The scoreboard

Plait is held against 24 systems. For each of them a script tries what the row says, with the tasks,
servers and frameworks of others where they install. A guest has an environment of its own in
`.venv-guests`; after its installation nothing leaves the machine.

```sh
make scoreboard
```

This page and `docs/scoreboard.json` are written by that command: a row says when it was run, at
which commit, and how long it took, on two cores that others used as well. A row *works* if all of
its sentence holds. One that *does not* says what is missing. One that was *not tried* says what
this machine lacks.
"""


class Row(NamedTuple):
    """One line of `rows.toml`."""

    number: int
    system: str
    script: str
    counts: str
    s_max: int


def read_rows() -> list[Row]:
    """Return the rows in their order."""
    return [Row(**each) for each in tomllib.loads((HERE / "rows.toml").read_text())["row"]]


def read_results() -> dict[int, dict[str, Any]]:
    """Return the kept result of each row by its number."""
    if not RESULTS.exists():
        return {}
    return {each["number"]: each for each in json.loads(RESULTS.read_text())["rows"]}


def run_row(row: Row) -> dict[str, Any]:
    """Run the script of a row in a process group of its own, and return its result."""
    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, str(HERE / row.script)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, said = child.communicate(timeout=row.s_max)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        printed, said = child.communicate()
        said = f"it did not end within {row.s_max} s"
    code = child.returncode if child.returncode in MEANINGS else 1
    line = next(iter(reversed(printed.splitlines())), "")
    if not line.startswith(f"{row.number:2} "):
        code, line = 1, f"{row.number:2} {row.system:20} fails: {' '.join(said.split())[-400:]}"
    return {
        "number": row.number,
        "system": row.system,
        "counts": row.counts,
        "code": code,
        "result": line[3:].removeprefix(row.system).strip(),
        "seconds": round(time.monotonic() - begun, 1),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "command": f"make scoreboard ROWS={row.number}",
    }


def render_page(results: list[dict[str, Any]]) -> str:
    """Return the text of the page for the kept results."""
    works = sum(each["code"] == 0 for each in results)
    untried = sum(each["code"] == 77 for each in results)
    lines = [
        _HEAD,
        f"{works} of {len(results)} work, {len(results) - works - untried} do not, {untried} were"
        " not tried.",
        "",
        "| # | system | | result | run |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {each['number']} | {each['system']} | {MEANINGS[each['code']]} |"
        f" {_cell(each['result'])} | {each['date']}, {each['commit']}, {each['seconds']} s |"
        for each in results
    ]
    lines += ["", "## What counts", "", "| # | it works when | command |", "|---|---|---|"]
    lines += [
        f"| {each['number']} | {_cell(each['counts'])} | `{each['command']}` |" for each in results
    ]
    return "\n".join(lines) + "\n"


def keep(results: dict[int, dict[str, Any]]) -> None:
    """Write the results and the page that is made of them."""
    rows = [results[number] for number in sorted(results)]
    RESULTS.write_text(json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(render_page(rows))


def main(numbers: list[int]) -> int:
    failed = False
    for row in read_rows():
        if numbers and row.number not in numbers:
            continue
        found = run_row(row)
        result, seconds = found["result"], found["seconds"]
        print(f"{row.number:2} {row.system:20} {result} ({seconds} s)", flush=True)
        failed |= found["code"] == 1
        keep({**read_results(), row.number: found})  # another command may have run others
    return int(failed)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=8"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main([int(each) for each in sys.argv[1:]]))
