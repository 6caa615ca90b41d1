"""Words: one form for every spelling, and Porter's stems as FTS5 has them."""

from __future__ import annotations

import random
import re
import sysconfig
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.ids import digest
from plait.memory.stemmer import base_form, stem_of
from plait.memory.words import WORD_LENGTH_MAX, query_words, sentences_of, text_digest, words_of

ROOT = Path(__file__).parents[2]
# The digest of the words of a text that is fixed.
GOLDEN = "a6dcac9e56a61bea4f96ef2d5f66e091583a3312569d1fd75f326c586d0cbb39"
ENDINGS = (
    "ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism iveness"
    " fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic"
    " able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize s es sses ies ed eed"
    " ing y e ll"
).split()


def readable(word: str) -> str:
    return bytes.fromhex(word[1:]).decode() if re.fullmatch("u(?:[0-9a-f]{2})+", word) else word


def readable_words(text: str) -> list[str]:
    return [readable(word) for word in words_of(text)]


def fts5_stems(words: list[str]) -> dict[str, str]:
    database: Any = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE text USING fts5(word, tokenize = 'porter unicode61')")
    database.execute("CREATE VIRTUAL TABLE seen USING fts5vocab(text, instance)")
    database.executemany("INSERT INTO text (rowid, word) VALUES (?, ?)", enumerate(words))
    return {words[number]: term for number, term in database.execute("SELECT doc, term FROM seen")}


def test_stems_are_those_of_fts5() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    files = [*ROOT.rglob("*.md"), *sorted(packages.glob("*/*.py"))[:400]]
    words = {
        word
        for file in files
        for word in re.findall("[a-z0-9]{1,70}", file.read_text(errors="replace").lower())
    }
    draw = random.Random(1)
    for _ in range(30_000):
        start = "".join(draw.choices("abeiouyslztwx1", k=draw.randint(0, 6)))
        words.add(start + draw.choice(ENDINGS) + draw.choice(["", *ENDINGS]))
    expected = fts5_stems(sorted(words))
    assert len(expected) > 20_000
    assert [
        (word, stem_of(word), stem) for word, stem in expected.items() if stem_of(word) != stem
    ] == []


@given(st.text(), st.text(max_size=20))
def test_every_word_is_kept_as_it_is_by_any_tokenizer(text: str, speaker: str) -> None:
    words = words_of(text, speaker)
    assert all(re.fullmatch("[a-z0-9]+", word) for word in words)
    assert words_of(text.upper().lower()) == words_of(text.lower())
    assert set(query_words(text)) <= set(words)


@given(st.text(st.characters(codec="ascii")))
def test_the_short_way_for_ascii_gives_the_same_words(text: str) -> None:
    assert words_of(text) == words_of(f"é {text} é")[1:-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Żółć ÅNGSTRÖM Straße Øre naïve", "zolc angstrom strass or naiv"),
        ("Ёлка ΣΊΣΥΦΟΣ", "елка σισυφοσ"),
        ("ＡＢＣ１２３ ﬁne", "abc123 fine"),
        ("Ann’s don't we've L'AMOUR", "ann do we l amour"),
        ("Plait™ snake_case a.b/c", "plait snake case a b c"),
        ("हिन्दी में", "हिन्दी में"),
        ("شَرِبَ שָׁלוֹם", "شرب שלום"),
        ("猫", "猫"),
        ("東京都", "東 京 都 東京 京都"),
        ("ネコです", "ネコ コで です"),
        ("สวัสดี", "สวั วัส สดี"),
        ("한국어", "한국 국어"),
        ("iPhone手机", "iphon 手 机 手机"),
        ("won winning children child", "win win child child"),
        ("?! 😀 …", ""),
    ],
)
def test_words_have_one_form(text: str, words: str) -> None:
    assert readable_words(text) == words.split()


def test_a_part_of_a_chinese_text_finds_it() -> None:
    text = set(words_of("她有一只黑色的猫，叫小白。"))
    for question in ("猫", "黑色的猫", "小白"):
        assert set(query_words(question)) <= text


def test_the_speaker_is_among_the_words() -> None:
    assert words_of("Good to see you!", "Ann-Marie O'Neil")[:4] == ["ann", "mari", "o", "neil"]


def test_a_question_leaves_out_function_words_unless_it_has_no_others() -> None:
    asked = "When did Ann go to the support group, and who went with the group?"
    assert query_words(asked) == ["ann", "go", "support", "group"]
    assert query_words("Who are you?") == ["who", "ar", "you"]
    assert query_words("") == []


def test_a_long_word_is_cut() -> None:
    assert words_of("9" * 500) == ["9" * WORD_LENGTH_MAX]
    assert readable_words("ж" * 500) == ["ж" * WORD_LENGTH_MAX]


def test_texts_that_say_the_same_have_the_same_digest() -> None:
    one = text_digest("The staging database is read-only.")
    assert (
        one
        == text_digest("  the STAGING database\n is read-only")
        == text_digest("ｔhe staging database is read-only!")
    )
    for other in ("The staging database isn't read-only.", "The staging database is read only."):
        assert text_digest(other) != one
    for pair in (("We do ship", "We don't ship"), ("-5", "5"), ("C++", "C#"), ("1.5", "1,5")):
        assert text_digest(pair[0]) != text_digest(pair[1])


def test_sentences_are_whole() -> None:
    text = "Version 3.11 is in. Is it? It is not true; no!\nLast line"
    assert sentences_of(text) == [
        "version 3.11 is in",
        "is it?",
        "it is not true",
        "no",
        "last line",
    ]


def test_the_words_of_version_1_do_not_change() -> None:
    """An index holds them. If this digest has to change, `WORDS_VERSION` has to change with it."""
    text = (ROOT / "LICENSE").read_text() + "Żółć, 東京都の猫 – she’s won! हिन्दी สวัสดี ＡＢＣ Ёлка"
    words = " ".join(words_of(text, "Ann"))
    assert digest(b"plait/words/1\n", words.encode()) == GOLDEN


def test_irregular_forms_have_a_base() -> None:
    assert [base_form(word) for word in ("wrote", "feet", "paint")] == ["write", "foot", "paint"]
