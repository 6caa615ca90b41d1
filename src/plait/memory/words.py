"""Words: the text of a memory, or of a question, as words to search by.

One pure function makes them, for the index and for the query alike. Case, accents and width are
folded; English endings are taken off; a script that is written without blanks is cut into pairs of
characters. Every word matches `[a-z0-9]+`: one with other letters is "u" and the hexadecimal digits
of its UTF-8, so that any full-text tokenizer keeps it as it is.

The words stand in an index, so they are frozen: a change needs a new `WORDS_VERSION`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from plait.ids import Digest, digest
from plait.memory.stemmer import base_form, stem_of

WORDS_VERSION = 1
WORD_LENGTH_MAX = 64  # characters; the rest of a longer word is cut off
_TEXTS = 64  # that are remembered with what follows from them: a text is looked at more than once

# English endings with an apostrophe are no words: "Ann's", "don't", "we've". Any other apostrophe
# divides words: "l'amour".
_ENDINGS = re.compile(r"(?<=[^\W_])(?:n't|'(?:s|re|ve|ll|d|m))(?![^\W_])")
_ASCII_WORDS = re.compile(r"[a-z0-9]+")
_LETTERS = re.compile(r"[^\W_]+")
_NO_LETTERS = re.compile(r"[\W_]")
# Blocks of the scripts whose vowel signs are marks. Python's \w leaves marks out.
_MARKED = re.compile("[\u0700-\u1cff\ua800-\uabff]")

# Marks that a reader of the script can do without: accents of Latin, Greek and Cyrillic, points of
# Hebrew, vowel signs of Arabic; and signs without a width. The marks of other scripts are letters.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef"
    "\u00ad\u200b-\u200f\u2060\ufeff]+"
)
# Letters that Unicode does not divide into a plain one and an accent; the other apostrophes.
_PLAIN = str.maketrans(
    {letter: plain for letter, plain in zip("øłđðħı", "olddhi", strict=True)}
    | {"þ": "th", "æ": "ae", "œ": "oe"}
    | dict.fromkeys("\u2018\u2019\u02bc\u00b4", "'")
)
# Signs that compatibility folding would turn into letters of the word before.
_SIGNS = re.compile("[\u2120\u2122]")

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_THAI_LAO = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"
_BURMESE_KHMER = "\u1000-\u103f\u1050-\u108f\u109a-\u109f\u1780-\u17d3"
# Korean has blanks between phrases, but a word and its particles stand together.
_HANGUL = "\uac00-\ud7a3"
_UNSPACED = re.compile(f"([{_HAN}{_KANA}{_HANGUL}{_THAI_LAO}{_BURMESE_KHMER}]+)")
_HAN_LETTER = re.compile(f"[{_HAN}]")

# Words that ask, point or connect. They say nothing on the matter of a question.
_FUNCTION_WORDS = frozenset(
    """
    a an the this that these those there here
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    who whom whose what which when where why how
    am is are was were be been being do does did done doing have has had having
    can could may might must shall should will would ought
    and or but nor so if then than because while as until unless though although whether
    of at by for with about against between into through during before after above below
    to from up down in out on off over under again
    no not any some such own same other another each every all both few more most only too very
    just also ever once
    ca wo s t re ve ll d m
    """.split()
)


def words_of(text: str, speaker: str = "") -> list[str]:
    """Return the words of a text, in order. The name of its speaker is among them."""
    return [*_stems(speaker), *_stems(text)]


def query_words(text: str) -> list[str]:
    """Return the distinct words of a question, in order, without function words.

    A question of nothing but function words keeps them all.
    """
    tokens = _tokens(text)
    telling = [token for token in tokens if token not in _FUNCTION_WORDS]
    return list(dict.fromkeys(map(_word, telling or tokens)))


@lru_cache(_TEXTS)
def plain_text(text: str) -> str:
    """Return a text as it is compared with another: case, width and blanks folded, and no signs of
    the end. It keeps everything that may change its meaning.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).strip(" .!;\"'“”‘’")


@lru_cache(_TEXTS)
def text_digest(text: str) -> Digest:
    """Return a digest that two texts share if they say the same in the same words."""
    return digest(b"plait/text/1\n", plain_text(text).encode())


def sentences_of(text: str) -> list[str]:
    """Divide a text into sentences, as they are compared. A question keeps its mark."""
    return [plain for each in _SENTENCE_ENDS.split(text) if (plain := plain_text(each))]


# A point inside a number or a name ends no sentence.
_SENTENCE_ENDS = re.compile(r"(?<=[.!?;。！？])\s+|\n+|(?<=[。！？])")


@lru_cache(_TEXTS)
def _stems(text: str) -> tuple[str, ...]:
    return tuple(map(_word, _tokens(text)))


@lru_cache(1 << 16)
def _word(token: str) -> str:
    """Return the stem of a token, or its bytes as digits."""
    token = token[:WORD_LENGTH_MAX]
    return stem_of(base_form(token)) if token.isascii() else "u" + token.encode().hex()


def _tokens(text: str) -> list[str]:
    """Divide a text into words in lower case, endings on."""
    folded = text.lower() if text.isascii() else _fold(text)
    if "'" in folded:
        folded = _ENDINGS.sub("", folded)
    if folded.isascii():
        return _ASCII_WORDS.findall(folded)
    if _MARKED.search(folded):
        found = _NO_LETTERS.sub(_mark_or_blank, folded).split()
    else:
        found = _LETTERS.findall(folded)
    return [token for word in found for token in ((word,) if word.isascii() else _pieces(word))]


def _fold(text: str) -> str:
    """Return the text without case, accents and width."""
    text = unicodedata.normalize("NFKC", _SIGNS.sub(" ", text)).casefold().translate(_PLAIN)
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


def _mark_or_blank(found: re.Match[str]) -> str:
    return found[0] if _is_mark(found[0]) else " "


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _pieces(word: str) -> Iterator[str]:
    """Cut the stretches of unspaced script out of a word, and cut these into characters."""
    for number, piece in enumerate(_UNSPACED.split(word)):
        if number % 2 == 0 and piece:
            yield piece
        elif piece:
            yield from _pairs(piece)


def _pairs(stretch: str) -> Iterator[str]:
    """Yield each pair of characters; a Han character, which has a meaning, also by itself."""
    characters: list[str] = []
    for character in stretch:
        if characters and _is_mark(character):
            characters[-1] += character
        else:
            characters.append(character)
    if len(characters) == 1:
        yield characters[0]
        return
    yield from (character for character in characters if _HAN_LETTER.match(character))
    for first, second in zip(characters, characters[1:], strict=False):
        yield first + second
