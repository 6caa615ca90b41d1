"""Bytes that a terminal would obey do not reach it; readable text does, unchanged."""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.cli.terminal import WIDE, age, console, cut_text, when
from plait.session.safe_text import BREAK, MARKS_MAX, clean
from tests.support import ForkedProgram, python, run_forked

JOINERS = "\u200c\u200d"
ST, ST8, BEL = "\x1b\\", "\x9c", "\x07"

# ── what is hostile ──────────────────────────────────────────────────────────────────────────

CSI = [
    "31m",
    "m",
    "2J",
    "1;1H",
    "?25l",
    "?1049h",
    ">4;2m",
    "38;2;255;0;0m",
    "38:2::1:2:3m",
    "6n",
    "!p",
    "0 q",
    "20t",
    "3\x0731m",
    "\x00K",
]
OSC = [
    "0;title",
    "8;;http://evil.example/",
    "52;c;cm0gLXJmIC8=",
    "10;?",
    "1337;File=inline=1:AAAA",
    "",
    "0;a\tb\x00c",
]
STRINGS = ["q#0;2;0;0;0~-", "$qm", "tmux;x", "Ga=T,f=24;AAAA", "", "a\x07b"]
TWO = [
    "c",
    "7",
    "8",
    "=",
    ">",
    "D",
    "E",
    "H",
    "M",
    "N",
    "O",
    "Z",
    "\\",
    "(0",
    "(B",
    "#8",
    "%G",
    " F",
    "$(C",
    "\x00c",
    "kscreen\x1b\\",
]

SEQUENCES = [
    *(intro + rest for intro, rest in itertools.product(("\x1b[", "\x9b", "\x1b\x00["), CSI)),
    *(
        intro + body + end
        for intro, body, end in itertools.product(("\x1b]", "\x9d"), OSC, (BEL, ST, ST8))
    ),
    *(
        intro + body + end
        for intro, body, end in itertools.product(
            ("\x1bP", "\x1bX", "\x1b^", "\x1b_", *"\x90\x98\x9e\x9f"), STRINGS, (ST, ST8)
        )
    ),
    *("\x1b" + rest for rest in TWO),
    "\x1bPtmux;\x1b\x1b]52;c;AAAA\x07\x1b\\",  # one within another, for tmux to pass on
]
UNENDED = [
    *(intro + body for intro, body in itertools.product(("\x1b]", "\x9d"), OSC)),
    *(
        intro + body
        for intro, body in itertools.product(
            ("\x1bP", "\x1bX", "\x1b^", "\x1b_", *"\x90\x98\x9e\x9f"), STRINGS
        )
    ),
    "\x1b[",
    "\x9b",
    "\x1b[31",
    "\x1b[?",
    "\x9b1;",
    "\x1b",
    "\x1b(",
    "\x1b\x1b",
]
CONTROLS = [
    chr(code)
    for code in (*range(0x09), *range(0x0B, 0x0D), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F)
]
C1 = [chr(code) for code in range(0x80, 0xA0) if code not in (0x90, 0x98, 0x9B, 0x9D, 0x9E, 0x9F)]
BIDI = [*map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C))]
INVISIBLE = [
    *map(
        chr,
        (
            0x200B,
            *range(0x2060, 0x2065),
            0xFEFF,
            0x180E,
            0xAD,
            0x2028,
            0x2029,
            *range(0xFFF9, 0xFFFC),
            0x034F,
            0x3164,
            0x115F,
        ),
    )
]
TAGS = [
    *map(chr, (0xE0000, 0xE0001, *range(0xE0020, 0xE0080, 7), 0xE007F, 0xE0100, 0xE0177, 0xE01EF))
]
# between ASCII letters, where nothing is to be joined
STRAY = ["\u200d", "\u200c", "\ufe0f", "\u200d\u200c\u200d"]

HOSTILE = [*SEQUENCES, *CONTROLS, *C1, *BIDI, *INVISIBLE, *TAGS]


def is_allowed(text: str, at: int) -> bool:
    """A joiner is, where it joins."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    return text[at] in JOINERS and all(
        side and not side.isascii() and not side.isspace() and side not in JOINERS
        for side in (before, after)
    )


def assert_harmless(text: str, *, lines: bool = False) -> None:
    for at, char in enumerate(text):
        if not (char == "\n" and lines):
            assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or is_allowed(
                text, at
            ), (text, at)


def test_there_are_enough_of_them() -> None:
    assert len({*HOSTILE, *UNENDED}) > 300


@pytest.mark.parametrize("payload", HOSTILE, ids=ascii)
def test_a_payload_goes_whole(payload: str) -> None:
    assert clean(payload) == ""
    assert clean(f"before{payload}after") == "beforeafter"
    assert clean(f"{payload}after") == "after"
    assert clean(f"before{payload}") == "before"
    assert clean(f"日本{payload}語") == "日本語"
    assert clean(f"{payload * 3}x{payload * 2}y") == "xy"
    assert clean(f"one{payload}\ntwo{payload}", lines=True) == "one\ntwo"
    assert clean(f"one{payload}\r\n{payload}two") == f"one{BREAK}two"


@pytest.mark.parametrize("payload", UNENDED, ids=ascii)
def test_what_is_not_ended_hides_no_more_than_its_line(payload: str) -> None:
    assert clean(f"before{payload}") == "before"
    for newline in ("\n", "\r\n", "\r"):
        assert clean(f"before{payload}{newline}next line", lines=True) == "before\nnext line"
        assert clean(f"before{payload}{newline}next line") == f"before{BREAK}next line"
    assert_harmless(clean(f"before{payload}after"))
    assert clean(f"before{payload}\x18after") == "beforeafter"  # CAN gives up a sequence


@pytest.mark.parametrize("payload", STRAY, ids=ascii)
def test_what_has_nothing_to_join_or_select_goes(payload: str) -> None:
    assert clean(f" {payload}b") == " b"
    assert clean(f"{payload}b") == "b"
    if payload != "\ufe0f":
        assert clean(f"a{payload}b") == "ab"
        assert clean(f"é{payload}b") == "éb"
        assert clean(f"é{payload}") == "é"


@given(
    st.lists(st.sampled_from([*HOSTILE, *UNENDED, *STRAY, *"abz中é", "\n", "\r", "\u0301"])).map(
        "".join
    ),
    st.booleans(),
)
def test_no_mixture_gets_through(text: str, lines: bool) -> None:
    assert_harmless(clean(text, lines=lines), lines=lines)


def test_every_control_and_format_character_is_known() -> None:
    """With this Python's Unicode; a newer one may have more."""
    for code in range(sys.maxunicode + 1):
        if (
            unicodedata.category(char := chr(code)) in ("Cc", "Cf", "Zl", "Zp")
            and char not in "\t\r\n"
        ):
            assert clean(f"\u2067a{char}") == "a", ascii(char)


def test_surrogates_are_replaced() -> None:
    assert clean("a\ud800b\udc9bc\udfff") == "a\ufffdb\ufffdc\ufffd"
    assert clean("\ud83d\ude00") == "\ufffd\ufffd"
    clean("".join(map(chr, range(0xD800, 0xE000)))).encode()


def test_it_takes_no_time() -> None:
    def clean_all(unit: str, size: int) -> float:
        """The least CPU seconds of three tries: the work is done in C, where calls
        are not counted.
        """
        taken: list[float] = []
        for _ in range(3):
            start = time.process_time()
            clean(unit * size)
            clean(unit * size, lines=True)
            cut_text(unit * size, 80)
            taken.append(time.process_time() - start)
        return min(taken)

    for unit in (
        "\x1b]0;",
        "\x1b[",
        "\x1bk",
        "\x1b",
        " \t",
        "\u0301",
        "\u200d",
        "é\u200d",
        "\ufe0f",
        "\n ",
        "\x9d\x9c",
        "中",
        "\x90a",
    ):
        # linear is 16, quadratic 256
        assert clean_all(unit, 40_000) < 64 * max(clean_all(unit, 2_500), 1e-4), unit


# ── what is not ──────────────────────────────────────────────────────────────────────────────

ORDINARY = [
    "plain ASCII, with [31m and ]0; and \\ in it",
    "Größe, naïve, Œuvre, Tiếng Việt, ĳ",
    "e\u0301 decomposed, a\u0323\u0302",
    "مرحبا بالعالم",
    "می\u200cخواهم",  # ZWNJ within a Persian word
    "שָׁלוֹם עֲלֵיכֶם",
    "क्षत्रिय, क्\u200dष",  # ZWJ after a virama
    "শ্রীমান্ র\u200d্যাব",
    "ශ්\u200dරී ලංකාව",
    "ภาษาไทย ที่นี่",
    "ཧྐྵྨླྺྼྻྂ",  # a base and eight marks
    "日本語、한국어, 漢字 ｆｕｌｌ　ｗｉｄｔｈ",
    "ᠮᠣᠩᠭᠣᠯ\u180b",
    "😀 👍🏽 ❤\ufe0f 1\ufe0f\u20e3 🇩🇪",
    "👩\u200d💻 👨\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🧑🏽\u200d🚀",
    "∀x ∈ ℝ: ⌈x⌉ = −⌊−x⌋, ≨\ufe00",
    "no\u00a0break, em\u2003space, “quotes” – dashes … ⏎ \ue0b0 \ufffd",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert clean(text) == text
    assert clean(text, lines=True) == text
    assert clean(f"{text}\n{text}", lines=True) == f"{text}\n{text}"


def test_line_breaks_and_tabs() -> None:
    text = "one\r\n\r\n  two\rthree\tx \n\n"
    assert clean(text) == "one ⏎ two ⏎ three x"
    assert clean(text, lines=True) == "one\n\n  two\nthree x \n\n"
    assert clean("\n \n") == ""
    assert clean("  as it is  ") == "  as it is  "
    assert clean("") == ""


def test_marks_are_capped() -> None:
    assert clean("Z" + "\u0301" * 50 + "a\u0302lgo") == "Z" + "\u0301" * MARKS_MAX + "a\u0302lgo"
    # a joiner begins nothing new
    assert clean("中" + "\u0301\u200d" * 50 + "x").count("\u0301") == MARKS_MAX
    assert (
        clean("\u0301" * 50 + "\n" + "\u0302" * 50, lines=True)
        == "\u0301" * MARKS_MAX + "\n" + "\u0302" * MARKS_MAX
    )
    assert clean("…" + "\u0301" * 8 + "…" + "\u0301" * 8) == "…" + "\u0301" * 8 + "…" + "\u0301" * 8


def test_selectors_do_not_pile_up() -> None:
    """Sixteen of them, one after the other, would be a way to write what nobody sees."""
    assert clean("a" + "\ufe00\ufe0f\ufe03" * 10 + "b") == "a\ufe00b"


ANY = st.text(st.characters(exclude_categories=())) | st.text(
    st.sampled_from(
        [
            *"a中é \n\r\t",
            *JOINERS,
            "\ufe0f",
            "\ufe00",
            "\u0301",
            "\u0302",
            "\u20e3",
            "\x1b",
            "[",
            "]",
            "m",
            "\x07",
            "\u200b",
            "\ud800",
        ]
    ),
    max_size=60,
)
LETTERS = st.text(
    st.characters(categories=("Lu", "Ll", "Lo", "Nd", "Po", "Sm", "So", "Zs")).filter(
        lambda char: char not in "\u115f\u1160\u3164\uffa0"
    )
)


@given(ANY, st.booleans())
def test_cleaning_twice_is_cleaning_once(text: str, lines: bool) -> None:
    once = clean(text, lines=lines)
    assert clean(once, lines=lines) == once
    assert_harmless(once, lines=lines)
    once.encode()


@given(LETTERS)
def test_letters_stay(text: str) -> None:
    assert clean(text) == text


@given(ANY)
def test_one_line_is_one_line(text: str) -> None:
    assert len(clean(text).splitlines()) <= 1


# ── cut ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("hello", 5, "hello"),
        ("hello", 4, "hel…"),
        ("hello", 1, "…"),
        ("hello", 0, ""),
        ("hello", -3, ""),
        ("", 0, ""),
        ("", 5, ""),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("日本語", 2, "…"),
        ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("😀😀", 3, "😀…"),
        ("👩\u200d💻👩\u200d💻!", 4, "👩\u200d💻…"),
        ("🇩🇪🇫🇷", 3, "🇩🇪…"),
        ("a👍🏽b", 3, "a…"),
        ("é" * 10, 10, "é" * 10),
        ("é" * 10, 9, "é" * 8 + "…"),
    ],
)
def test_cut(text: str, width: int, expected: str) -> None:
    assert cut_text(text, width) == expected


@given(ANY.map(clean), st.integers(-1, 30))
def test_a_cut_fits_and_is_a_beginning(text: str, width: int) -> None:
    from rich.cells import cell_len

    found = cut_text(text, width)
    assert cell_len(found) <= max(width, 0)
    assert found in ("", text) or (found.endswith("…") and text.startswith(found[:-1]))
    if width > 0 and sum(map(cell_len, text)) <= width:
        assert found == text


def test_a_chain_of_joiners_does_not_count_as_one() -> None:
    assert cut_text("中\u200d" * 40 + "中", 10) == "中\u200d" * 4 + "…"


# ── console ──────────────────────────────────────────────────────────────────────────────────

PRINTS = """
from plait.cli.terminal import console
from rich.text import Text
out = console()
out.print(Text("[bold] :smile: 12 " + "long " * 100, "bold red"))
out.print("[red]x[/red] :smile: 'y' 12")
"""
LONG = "[bold] :smile: 12 " + "long " * 100
PLAIN = f"{LONG}\n[red]x[/red] :smile: 'y' 12\n"


def environ(**changes: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "COLORTERM")
    }
    return {**kept, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **changes}


def piped(code: str, **changes: str) -> str:
    return run_forked([sys.executable, "-c", code], env=environ(**changes)).stdout


def on_a_terminal(code: str, **changes: str) -> str:
    ours, theirs = pty.openpty()
    with ForkedProgram(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ(**changes),
    ) as process:
        os.close(theirs)
        got = b""
        try:
            while chunk := os.read(ours, 65536):
                got += chunk
        except OSError:  # Linux says so when the other end is closed
            pass
        assert process.wait() == 0
    os.close(ours)
    return got.decode().replace("\r\n", "\n")


def test_a_pipe_gets_the_text_and_nothing_else() -> None:
    assert piped(PRINTS) == PLAIN
    assert piped(PRINTS, COLUMNS="20", NO_COLOR="1") == PLAIN


def test_a_pipe_is_coloured_if_forced_and_still_not_cut() -> None:
    forced = piped(PRINTS, FORCE_COLOR="1")
    assert f"\x1b[1;31m{LONG}" in forced
    assert clean(forced, lines=True) == PLAIN
    assert piped(PRINTS, FORCE_COLOR="1", NO_COLOR="1") == PLAIN
    assert piped(PRINTS, FORCE_COLOR="1", TERM="dumb") == PLAIN


def test_a_terminal_is_coloured_unless_that_is_declined() -> None:
    assert f"\x1b[1;31m{LONG}" in on_a_terminal(PRINTS)
    assert on_a_terminal(PRINTS, NO_COLOR="1") == PLAIN


def test_a_table_in_a_pipe_is_as_wide_as_its_cells() -> None:
    table = (
        "from rich.table import Table\nt = Table.grid(padding=(0, 2))\nt.add_row('a' * 300,"
        " 'b')\nconsole().print(t)"
    )
    assert piped(f"from plait.cli.terminal import console\n{table}").rstrip() == "a" * 300 + "  b"


def test_a_character_the_encoding_lacks_is_escaped() -> None:
    code = "from plait.cli.terminal import console\nconsole().print('● x')"
    assert piped(code, PYTHONIOENCODING="ascii") == "\\u25cf x\n"


def test_a_console_on_either_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    console().print("to out")
    console(stderr=True).print("to err ●")
    assert out.getvalue() == "to out\n"
    err.seek(0)
    assert err.read() == "to err \\u25cf\n"
    assert console().width == WIDE


def test_rich_is_loaded_late() -> None:
    assert (
        "rich"
        not in python(
            "import plait.cli.terminal, plait.outline.event_lanes, sys; print(*sys.modules)"
        ).stdout.split()
    )


# ── times ────────────────────────────────────────────────────────────────────────────────────

SECOND = 1_000_000
NOON = 1_794_785_711 * SECOND


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (5 * 60 + 59, "5 min ago"),
        (59 * 60 + 59, "59 min ago"),
        (3600, "1 h ago"),
        (3 * 3600 + 1, "3 h ago"),
        (86_399, "23 h ago"),
        (2 * 86_400, "2 d ago"),
        (7 * 86_400 - 1, "6 d ago"),
        (7 * 86_400, "2026-11-08"),
        (-1, "2026-11-15 23:35:12"),
        (-7_200, "2026-11-16 01:35:11"),
    ],
)
def test_age(seconds: int, expected: str) -> None:
    assert age(NOON - seconds * SECOND, NOON) == expected


def test_when() -> None:
    assert when(NOON) == "2026-11-15 23:35:11"
    assert when(NOON + 999_999) == "2026-11-15 23:35:11"
    assert when(0) == "1970-01-01 00:00:00"
    assert when(-1) == "1969-12-31 23:59:59"
    assert when(253_402_300_799_999_999) == "9999-12-31 23:59:59"
    assert when(253_402_300_800_000_000) == "253402300800000000"
    assert when(-62_135_596_800_000_000) == "0001-01-01 00:00:00"
    assert age(-(2**63), 2**63) == str(-(2**63))


@given(st.integers(-(2**80), 2**80), st.integers(-(2**80), 2**80))
def test_times_never_raise(micros: int, now: int) -> None:
    assert re.fullmatch(r"-?\d+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", when(micros))
    assert age(micros, now)
