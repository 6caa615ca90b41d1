"""Porter's stemmer: it takes the endings off English words, so that "paints" finds "painting".

M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980), with the two changes that he
published later (-bli, -logi). The letters stand for themselves: a digit counts as a consonant. The
words of an index are made by it, so it is frozen: a change needs a new version of the words.

Endings say nothing on irregular forms ("won", "children"). A table leads those to the form that a
dictionary has, which is stemmed like any word.
"""

from __future__ import annotations

import re

# Longer words are names, digests or numbers: they have no ending to take off.
STEM_LENGTH_MAX = 64

# Each ending and its replacement. The longest ending that fits decides, so longer ones come first.
_SECOND = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("entli", "ent"),
    ("ousli", "ous"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("alli", "al"),
    ("ator", "ate"),
    ("bli", "ble"),
    ("eli", "e"),
)
_THIRD = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_FOURTH = (
    "ement",
    "ance",
    "ence",
    "able",
    "ible",
    "ment",
    "ant",
    "ent",
    "ion",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "al",
    "er",
    "ic",
    "ou",
)

# The form of a dictionary, then its irregular forms. A form that is more often another word is left
# out: "rose", "bore", "lay", "bound", "wound", "ground", "fed", "shot", "lit", "bit".
_IRREGULAR = """
    arise arose arisen; awake awoke awoken; beat beaten; become became; begin began begun
    bend bent; bite bitten; bleed bled; blow blew blown; break broke broken; breed bred
    bring brought; build built; burn burnt; buy bought; catch caught; choose chose chosen
    cling clung; come came; creep crept; deal dealt; dig dug; draw drew drawn; dream dreamt
    drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feel felt; fight fought
    find found; flee fled; fling flung; fly flew flown; forbid forbade forbidden
    forget forgot forgotten; forgive forgave forgiven; freeze froze frozen; get got gotten
    give gave given; go went gone; grow grew grown; hang hung; hear heard; hide hid hidden
    hold held; keep kept; kneel knelt; know knew known; lead led; lean leant; leap leapt
    learn learnt; leave left; lend lent; lose lost; make made; mean meant; meet met
    mistake mistook mistaken; overcome overcame; pay paid; prove proven; ride rode ridden
    ring rang rung; rise risen; run ran; say said; see saw seen; seek sought; sell sold; send sent
    sew sewn; shake shook shaken; shine shone; show shown; shrink shrank shrunk; sing sang sung
    sink sank sunk; sit sat; sleep slept; slide slid; sling slung; sow sown; speak spoke spoken
    speed sped; spell spelt; spend spent; spill spilt; spin spun; spoil spoilt; spring sprang sprung
    stand stood; steal stole stolen; stick stuck; sting stung; stink stank stunk; strike struck
    strive strove striven; swear swore sworn; sweep swept; swell swollen; swim swam swum
    swing swung; take took taken; teach taught; tear tore torn; tell told; think thought
    throw threw thrown; understand understood; undertake undertook undertaken; wake woke woken
    wear wore worn; weave wove woven; weep wept; win won; withdraw withdrew withdrawn
    wring wrung; write wrote written
    child children; foot feet; goose geese; man men; mouse mice; person people; tooth teeth
    woman women; knife knives; life lives; leaf leaves; shelf shelves; thief thieves; wife wives
    wolf wolves; half halves; loaf loaves; calf calves
    analysis analyses; crisis crises; criterion criteria; phenomenon phenomena
"""
_BASE_FORMS = {
    form: forms[0]
    for forms in (entry.split() for entry in re.split("[;\n]", _IRREGULAR) if entry.strip())
    for form in forms[1:]
}
_DOUBLED = re.compile(r"([^aeioulsz])\1\Z")


def stem_of(word: str) -> str:
    """Return the stem of a word in lower case."""
    if not 2 < len(word) <= STEM_LENGTH_MAX or word[-1] in "0123456789":
        return word  # no ending has a digit
    word = _without_plural(word)
    word = _without_tense(word)
    if word[-1] == "y" and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _with_ending_replaced(word, _SECOND)
    word = _with_ending_replaced(word, _THIRD)
    word = _without_suffix(word)
    return _tidied(word)


def base_form(word: str) -> str:
    """Return the form that a dictionary has of an irregular word, or the word itself."""
    return _BASE_FORMS.get(word, word)


def _without_plural(word: str) -> str:
    if word[-1] != "s":
        return word
    if word[-2] == "e":
        is_long = (len(word) > 4 and word[-4:-2] == "ss") or (len(word) > 3 and word[-3] == "i")
        return word[:-2] if is_long else word[:-1]
    return word if word[-2] == "s" else word[:-1]


def _without_tense(word: str) -> str:
    if word.endswith("eed") and len(word) > 3:
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            stem = word[: -len(ending)]
            return _restored(stem) if _has_vowel(stem) else word
    return word


def _restored(stem: str) -> str:
    """Give back the letter that -ed or -ing had taken: "hop(p)ed", "fil(e)ing"."""
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _DOUBLED.search(stem):
        return stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _is_short(stem) else stem


def _with_ending_replaced(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    for ending, replacement in endings:
        if word.endswith(ending) and len(word) > len(ending):
            stem = word[: -len(ending)]
            return stem + replacement if _measure(stem) > 0 else word
    return word


def _without_suffix(word: str) -> str:
    for ending in _FOURTH:
        if word.endswith(ending) and len(word) > len(ending):
            stem = word[: -len(ending)]
            fits = _measure(stem) > 1 and (ending != "ion" or stem[-1] in "st")
            return stem if fits else word
    return word


def _tidied(word: str) -> str:
    if word[-1] == "e":
        stem = word[:-1]
        measure = _measure(stem)
        if measure > 1 or (measure == 1 and not _is_short(stem)):
            word = stem
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _shape(stem: str) -> str:
    """Write "c" for each consonant and "v" for each vowel. A "y" after a consonant is a vowel."""
    shape: list[str] = []
    kind = "v"
    for letter in stem:
        is_vowel = letter in "aeiou" or (letter == "y" and kind == "c")
        kind = "v" if is_vowel else "c"
        shape.append(kind)
    return "".join(shape)


def _measure(stem: str) -> int:
    """Count the changes from a vowel to a consonant."""
    return _shape(stem).count("vc")


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _is_short(stem: str) -> bool:
    """Say if it ends on consonant, vowel, consonant, and the last is none of w, x and y."""
    return _shape(stem)[-3:] == "cvc" and stem[-1] not in "wxy"
