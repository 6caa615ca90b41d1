"""Proves the claims of README.md: runs the command of each, and writes docs/claims.md.

    python tools/claims.py                 # all of them
    python tools/claims.py --only wire     # those whose words have this text; the others stay
    python tools/claims.py --missing       # those that have no result yet

`docs/claims.toml` has the claims and their commands. A result has its date and the commit that it
was measured on. The exit code is 1 if a command failed; its row then says so.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
README, CLAIMS, PAGE = ROOT / "README.md", ROOT / "docs/claims.toml", ROOT / "docs/claims.md"
HEAD = """# Claims

Each claim of the [README](../README.md), the command that proves it, and the last time that it did.
`make claims` runs the commands and writes this page; `claims.toml` beside it has the list. A claim
without a command fails a test.

| claim | command | on | commit | result |
|---|---|---|---|---|
"""
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# a number with a unit, which a reader would want to see measured
FIGURE = re.compile(
    r"\b\d[\d,.]*\s*(?:ms|µs|s|seconds?|minutes?|hours?|%|[KMG]?B|x|times|events|sessions|tests"
    r"|kills|runs)\b"
)
SENTENCE = re.compile(r"(?<=[.:!?])\s+(?=[A-Z`*\[])")


class Claim(NamedTuple):
    """Words of the README, and the command that proves them."""

    words: str
    command: str
    shows: str  # "": the last line of the output is the result


class Proof(NamedTuple):
    """A claim as it stands on the page."""

    words: str
    command: str
    date: str
    commit: str
    result: str


def read_claims(text: str) -> list[Claim]:
    """Return the claims of a list; those without a command have ""."""
    entries = tomllib.loads(text)["claims"]
    return [
        Claim(each["claim"], each.get("command", "").strip(), each.get("shows", ""))
        for each in entries
    ]


def plain_text(markdown: str) -> str:
    """Return a text without links, pictures and line breaks, as a claim is compared with it."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    shown = re.sub(r"<[^>]+>", " ", shown)
    return " ".join(shown.replace("**", "").split())


def claimed_texts(readme: str) -> Iterator[str]:
    """Yield the texts of the README that need a claim: figures, and cells of our own column.

    Figures in the columns of others are theirs. A cell that says "no" claims nothing.
    """
    prose: list[str] = []
    column = None
    for line in BLOCK.sub("", readme).splitlines():
        if not line.startswith("|"):
            column = None
            prose.append(line)
            continue
        cells = [plain_text(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if column is None:
            column = cells.index("Plait") if "Plait" in cells else -1
        elif column < 0:
            prose += ["", *(f"{cell}\n" for cell in cells)]
        elif not set(cells[column]) <= set("-: ") and cells[column] != "no":
            yield cells[column]
    for paragraph in "\n".join(prose).split("\n\n"):
        for sentence in SENTENCE.split(plain_text(paragraph)):
            if FIGURE.search(sentence):
                yield sentence


def unclaimed_texts(readme: str, claims: Iterable[Claim]) -> list[str]:
    """Return the texts of the README that need a claim and have none."""
    known = [plain_text(claim.words) for claim in claims]
    return [
        text
        for text in claimed_texts(readme)
        if not any(words in text or text in words for words in known)
    ]


def read_page(page: str) -> dict[tuple[str, str], Proof]:
    """Return the rows of the page, by words and command."""
    rows = [
        Proof(*(_unescaped(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]))
        for line in page.partition("|---|")[2].splitlines()[1:]
        if line.startswith("|")
    ]
    return {(row.words, row.command): row for row in rows}


def page_of(proofs: Iterable[Proof]) -> str:
    """Return the page with these rows."""
    return HEAD + "".join(
        f"| {_escaped(proof.words)} | `{_escaped(proof.command)}` | {proof.date} |"
        f" {proof.commit} | {_escaped(proof.result)} |\n"
        for proof in proofs
    )


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _unescaped(cell: str) -> str:
    text = cell.strip().replace("\\|", "|")
    return text[1:-1] if re.fullmatch(r"`[^`]*`", text) else text


def prove(claim: Claim, date: str, commit: str) -> Proof:
    """Run the command of a claim."""
    if not claim.command:
        return Proof(plain_text(claim.words), "", date, commit, "failed: no command")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # a summary without colours, and no cache of an earlier failure
    settings = {"PATH": path, "NO_COLOR": "1", "PYTEST_ADDOPTS": "-q -p no:cacheprovider"}
    done = subprocess.run(
        claim.command,
        shell=True,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **settings},
    )
    return Proof(
        plain_text(claim.words),
        claim.command,
        date,
        commit,
        result_text(claim, done.returncode, done.stdout),
    )


def result_text(claim: Claim, code: int, output: str) -> str:
    """Return the result of a command: what was to be shown, or the last line; or "failed: …"."""
    lines = [line.strip("= ") for line in output.splitlines() if line.strip("= ")]
    last = lines[-1] if lines else ""
    if code:
        return f"failed: exit code {code}: {last}"[:200]
    if claim.shows:
        found = re.search(claim.shows, output)
        return found[0] if found else f"failed: nothing shows {claim.shows}"
    if claim.command.startswith("pytest"):
        return re.sub(r"\s*(, \d+ (?:warnings?|deselected)|in [\d.]+s.*)", "", last)
    return last[:200]


def commit_text() -> str:
    """Return the commit of the checkout; "+" behind it: with changes that are not committed."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests", "README.md", "docs/claims.toml")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="the claims whose words have this text")
    parser.add_argument("--missing", action="store_true", help="the claims without a result")
    given = parser.parse_args()
    claims = read_claims(CLAIMS.read_text())
    before = read_page(PAGE.read_text()) if PAGE.exists() else {}
    date, commit = datetime.now(UTC).strftime("%Y-%m-%d"), commit_text()
    proofs: list[Proof] = []
    for claim in claims:
        known = before.get((plain_text(claim.words), claim.command))
        if known is not None and (given.missing or given.only not in claim.words):
            proofs.append(known)
            continue
        proof = prove(claim, date, commit)
        proofs.append(proof)
        print(f"{proof.result}  {proof.words[:80]}", flush=True)
    PAGE.write_text(page_of(proofs))
    return 1 if any(proof.result.startswith("failed") for proof in proofs) else 0


if __name__ == "__main__":
    sys.exit(main())
