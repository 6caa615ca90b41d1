"""The messages that the benchmarks write: each with a body of 1 KB, of random text and of prose.

Random text is base64 of random bytes, which hardly compresses; prose is the words of the paragraphs
below in an order drawn anew for every message, which compresses as plain language does but for its
phrases. A seed decides both.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

from plait.event import VOCABULARY
from plait.event.kinds import MessageSaid, Text

BODY_SIZE = 1024

_PROSE = """
The harbour office keeps a ledger of every boat that comes in before noon. Nobody remembers who started it, yet the
clerk who opens the shutters each morning writes down the name, the captain, what was carried, and how the weather
looked from the end of the pier. When a question comes up months later, about a missing crate or a broken rail, people
walk over and read the page instead of arguing about it. A page that was written at the time settles more than the
best memory in town, and it does so without raising its voice.

In the second winter the roof leaked and a third of the older volumes were soaked. They were dried by the stove, one
leaf at a time, and copied by whoever had a steady hand and an hour to spare. Some lines could not be read any more, so
the copyists left a gap and noted why. It would have been easy to guess. A gap with a reason is worth more than a guess,
because later readers know exactly how far they may lean on it, and where they have to look for another witness.

There were quarrels, of course. Two captains once claimed the same berth on the same tide, and each brought friends who
had seen everything. The clerk turned back eleven pages and showed them both entries, one above the other, with the
ferry between them. The first had come at ten, the second at half past. They laughed about it in the end, paid for the
rope that had been cut, and asked that this should be written down as well, so that their sons would not start again.

Visitors often ask whether such a habit is not a burden. It takes a few minutes a day, says the clerk, and saves a week
every spring. What takes effort is to write what happened rather than what should have happened, and to leave yesterday
alone even when today knows better. If something was wrong, a new line says so and points at the old one. Nothing is
rubbed out. The book grows longer and the town grows calmer, and the shutters are opened again at six.
"""  # noqa: E501
_WORDS = _PROSE.split()

Sample = Callable[[], MessageSaid]


def random_text(seed: int = 1) -> Sample:
    draw = random.Random(seed)
    size = _text_size()
    return lambda: _message(base64.b64encode(draw.randbytes(size)).decode()[:size])


def prose(seed: int = 1) -> Sample:
    draw = random.Random(seed)
    size = _text_size()
    return lambda: _message(" ".join(draw.sample(_WORDS, len(_WORDS)))[:size])


SAMPLES: dict[str, Callable[[], Sample]] = {"random text": random_text, "prose": prose}


def _message(text: str) -> MessageSaid:
    return MessageSaid(role="user", parts=(Text(text),))


def _text_size() -> int:
    """Return the length of a text that makes a body of exactly BODY_SIZE bytes."""
    return BODY_SIZE - len(VOCABULARY.encode(_message("-"))) + 1
