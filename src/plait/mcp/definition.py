"""The whole definition of a tool by its server, and the digest of exactly that."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from plait.errors import InvalidInput
from plait.event import Json
from plait.event.strict import parse
from plait.ids import Digest, digest
from plait.mcp.text import clean, clean_json, findings, texts

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")


class Definition(msgspec.Struct, frozen=True):
    """A definition as the server sent it, hidden characters included: the digest is over this."""

    name: str
    description: str
    schema: Json
    output: Json = None  # None: it declares none
    annotations: Json = None

    @property
    def digest(self) -> Digest:
        parts = [self.name, self.description, self.schema, self.output, self.annotations]
        return digest(b"plait/mcp-tool/1", msgspec.json.encode(parts, order="deterministic"))

    @property
    def shown_description(self) -> str:
        return clean(self.description)

    @property
    def shown_schema(self) -> dict[str, Json]:
        shown = clean_json(self.schema)
        assert isinstance(shown, dict)
        return shown

    def hidden_characters(self) -> list[str]:
        """Return the hidden characters in the texts for a model, with their places."""
        found = findings(self.description, f"description of {self.name}")
        for path, text, _ in texts(self.schema):
            found += findings(text, f"{path} of {self.name}")
        return found

    def refusal(self) -> str:
        """Return the reason why the tool is not offered at all. "": it is."""
        if found := findings(self.name, f"name of {clean(self.name)!r}"):
            return "; ".join(found)
        if not _NAME.match(self.name):
            return f"name of {self.name[:80]!r}: it is not 1 to 64 letters, digits, _ . and -"
        if not isinstance(self.schema, dict):
            return f"schema of {self.name}: it is not a JSON object"
        # A key cannot be cleaned: the server would not know the argument by its other name.
        hidden = [
            line
            for path, text, is_key in texts(self.schema)
            if is_key
            for line in findings(text, f"{path} of {self.name}, a key")
        ]
        return "; ".join(hidden)


def read_definition(tool: Any) -> Definition:
    """Read one tool of a listing; raises InvalidInput if JSON cannot carry it there and back."""
    dumped: dict[str, Any] = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
    wanted = {"name": tool.name, "description": tool.description or ""}
    for ours, theirs in (
        ("schema", "inputSchema"),
        ("output", "outputSchema"),
        ("annotations", "annotations"),
    ):
        wanted[ours] = dumped.get(theirs)
    try:
        data = msgspec.json.encode(wanted)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(str(error)) from error
    return msgspec.convert(parse(data), Definition)
