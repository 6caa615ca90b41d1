"""Events: the facts and their bytes. The vocabulary is in `plait.event.kinds`."""

from plait.event.codec import (
    Event,
    Header,
    check_content,
    parse_event,
    parse_header,
    seal,
    seal_all,
)
from plait.event.kinds import KINDS, Body
from plait.event.strict import Json, parse
from plait.event.vocabulary import VOCABULARY, Vocabulary, without_measured

__all__ = (
    "KINDS",
    "VOCABULARY",
    "Body",
    "Event",
    "Header",
    "Json",
    "Vocabulary",
    "check_content",
    "parse",
    "parse_event",
    "parse_header",
    "seal",
    "seal_all",
    "without_measured",
)
