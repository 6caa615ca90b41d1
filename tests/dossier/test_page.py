"""The page: no script, nothing from elsewhere, every text as text, every claim with its step."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from plait.dossier.markup import cost_text, text, took_text
from plait.dossier.page import dossier_page
from plait.outline.shapes import SpentShape
from tests.dossier.documents import PageElements, dossier_of
from tests.outline.programs import hostile_texts
from tests.outline.sessions import ViewStore

TAGS = set(
    "html head meta title style body header p code h1 h2 h3 b i a nav ol li main section dl div dt"
    " dd small ins del blockquote footer table thead tbody tr th td br ul svg path circle span"
    " details summary pre wbr".split()
)
ATTRIBUTES = set(
    "lang charset http-equiv content name class role href aria-label aria-labelledby id scope width"
    " height aria-hidden focusable d cx cy r tabindex title".split()
)
NAMES = ("repair", "resolved", "rewound", "remembered", "large", "debate", "hostile", "killed")


@pytest.mark.parametrize("name", NAMES)
def test_it_has_no_script_and_loads_nothing(made: ViewStore, name: str) -> None:
    page = dossier_page(dossier_of(made, name), has_run=True)
    found = PageElements(page)
    assert set(found.tags) <= TAGS
    assert found.attributes <= ATTRIBUTES
    assert all(link.startswith("#") or link == "run.html" for link in found.links)
    style = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    assert len(style) == 1 and "url(" not in style[0] and "@import" not in style[0]
    digest = b64encode(sha256(style[0].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page


@pytest.mark.parametrize("name", NAMES)
def test_every_step_has_an_anchor_and_every_link_an_end(made: ViewStore, name: str) -> None:
    dossier = dossier_of(made, name)
    found = PageElements(dossier_page(dossier, has_run=True))
    assert len(found.anchors) == len(set(found.anchors))
    assert {link for link in found.links if link != "run.html"} <= {
        f"#{anchor}" for anchor in found.anchors
    }
    assert dossier.family is not None
    numbers = {branch.log: at for at, branch in enumerate(dossier.family.branches)}
    steps = [each.step for each in dossier.steps]
    assert {f"s{numbers[step.log]}-{step.first}" for step in steps} <= set(found.anchors)
    claims = [
        *dossier.asked,
        *dossier.rejected,
        *dossier.verdicts,
        *dossier.failures,
        *dossier.effects,
        *dossier.facts,
        *dossier.consents,
        *dossier.memory_read,
        *dossier.memory_written,
    ]
    owners = {(step.log, seq): step for step in steps for seq in step.events}
    for claim in claims:
        step = owners[claim.at.log, claim.at.seq]
        assert f"#s{numbers[step.log]}-{step.first}" in found.links


def test_hostile_texts_are_texts(made: ViewStore) -> None:
    page = dossier_page(dossier_of(made, "hostile"), has_run=False)
    shown = PageElements(page).text
    plain = [each for each in hostile_texts() if each.isprintable() and each.isascii()]
    assert len(plain) >= 100
    flat = " ".join(shown.split())
    missing = [each for each in plain if " ".join(each.split()) not in flat]
    assert missing == []
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", page
    )
    assert not re.search("[\ufeff\U000e0000-\U000e0fff]", page)
    assert "[U+202E]" in shown and "[U+200B]" in shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#x27;"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]8;;x\x07b", "a␛]8;;x␇b"),
        ("\u202ex\ud800", "[U+202E]x[U+D800]"),
        ("a\r\nb\tc\rd", "a\nb\tc␍d"),
        ("ä 漢字 🙂", "ä 漢字 🙂"),
    ],
)
def test_texts_are_made_harmless(given: str, shown: str) -> None:
    assert text(given) == shown


def test_figures_are_told_as_people_read_them() -> None:
    assert cost_text(SpentShape(cost_usd=None, unpriced=2)) == "price not known"
    assert cost_text(SpentShape(cost_usd=0.00158)) == "$0.0016"
    assert cost_text(SpentShape(cost_usd=0.00005)) == "$0.00005"
    assert cost_text(SpentShape(cost_usd=1.5, unpriced=1)) == (
        "at least $1.50, and 1 reply without a known price"
    )
    assert [took_text(each) for each in (None, 47, 12_000, 2_810_000, 600_000_000)] == [
        "",
        "47 µs",
        "12 ms",
        "2.8 s",
        "10 min",
    ]


def test_a_stranger_finds_the_answers_on_the_first_screen(made: ViewStore) -> None:
    page = dossier_page(dossier_of(made, "repair"), has_run=False)
    short = PageElements(page.partition('<dl class="short">')[2].partition("</dl>")[0]).text
    for words in (
        "Checkout goes negative: see ISSUE.md",
        "3 branches, 12 model calls, 11 tool calls",
        "tests passed",
        "reject: the verdict tests failed",
        "cart.py",
        "$0.0016",
        "nothing was read or written",
        "no tool reached beyond the files",
    ):
        assert words in short, words
    unknown = dossier_page(dossier_of(made, "unknown"), has_run=False)
    assert "wire (may have happened)" in PageElements(unknown).text
    assert "price not known" in dossier_page(dossier_of(made, "resumed"), has_run=False)
