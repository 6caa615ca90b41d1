"""The claims of the README: each has a command, and the page of their results is of the same list.

`make claims` runs the commands. These tests run none of them.
"""

from __future__ import annotations

import shlex

import pytest

from tests.support import ROOT
from tools import claims

TESTS, FIGURE = claims.Claim("", "pytest a", ""), claims.Claim("", "plait x", r"\d+ ms")
TABLE = "| you want to … | Other | Plait |\n|---|---|---|\n| go on | no | Yes, [so](a.md). |\n"


def listed() -> list[claims.Claim]:
    return claims.read_claims(claims.CLAIMS.read_text())


def test_each_claim_stands_in_the_readme_and_has_a_command() -> None:
    readme = claims.plain_text(claims.README.read_text())
    for claim in listed():
        assert claims.plain_text(claim.words) in readme, "docs/claims.toml: not in README.md"
        assert claim.command, f"docs/claims.toml: no command proves {claim.words!r}"


def test_each_figure_and_each_row_of_the_readme_has_a_claim() -> None:
    missing = claims.unclaimed_texts(claims.README.read_text(), listed())
    assert missing == [], "Add the claim and its command to docs/claims.toml."


def test_the_page_has_the_list_and_no_failure() -> None:
    rows = claims.read_page(claims.PAGE.read_text())
    wanted = [(claims.plain_text(claim.words), claim.command) for claim in listed()]
    assert list(rows) == wanted, "Write docs/claims.md anew: make claims"
    assert [row for row in rows.values() if row.result.startswith("failed")] == []
    assert claims.page_of(rows.values()) == claims.PAGE.read_text()


def test_tests_and_files_that_commands_name_exist() -> None:
    for claim in listed():
        for word in shlex.split(claim.command):
            if word.startswith(("tests/", "examples/", "benchmarks/", "scoreboard/")):
                file, _, test = word.partition("::")
                assert (ROOT / file).exists(), word
                assert not test or f"def {test}(" in (ROOT / file).read_text(), word


@pytest.mark.parametrize(
    ("readme", "missing"),
    [
        (TABLE, ["Yes, so."]),
        ("It starts in 20 ms. It is small.\n", ["It starts in 20 ms."]),
        ("It is small, and needs Python 3.11.\n", []),
        ("```text\n20 ms\n```\n", []),
        ("| a | b |\n|---|---|\n| x | It takes 20 ms. |\n", ["It takes 20 ms."]),
        ("| a | Plait |\n|---|---|\n| 20 ms | no |\n", []),
    ],
)
def test_a_claim_that_is_not_in_the_list_is_found(readme: str, missing: list[str]) -> None:
    assert claims.unclaimed_texts(readme, []) == missing
    known = [claims.Claim(text, "true", "") for text in missing]
    assert claims.unclaimed_texts(readme, known) == []


@pytest.mark.parametrize(
    ("claim", "code", "output", "result"),
    [
        (TESTS, 0, "..\n3 passed, 1 skipped in 0.41s\n", "3 passed, 1 skipped"),
        (TESTS, 1, "F\n1 failed in 0.1s", "failed: exit code 1: 1 failed in 0.1s"),
        (TESTS, 5, "no tests ran", "failed: exit code 5: no tests ran"),
        (FIGURE, 0, "took 20 ms", "20 ms"),
        (FIGURE, 0, "took long", r"failed: nothing shows \d+ ms"),
    ],
)
def test_the_result_is_what_the_command_says(
    claim: claims.Claim, code: int, output: str, result: str
) -> None:
    assert claims.result_text(claim, code, output) == result


def test_a_claim_without_a_command_fails() -> None:
    (claim,) = claims.read_claims('[[claims]]\nclaim = "It is quick."\n')
    assert claims.prove(claim, "2026-01-01", "abc").result == "failed: no command"


def test_commands_run_in_the_checkout() -> None:
    claim = claims.Claim(
        "It is there.", "python -c \"print('a | b', __import__('plait').__name__)\"", ""
    )
    proof = claims.prove(claim, "2026-01-01", "abc")
    assert proof.result == "a | b plait"
    assert list(claims.read_page(claims.page_of([proof])).values()) == [proof]
