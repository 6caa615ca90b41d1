"""Turns the answers of a server into results of a tool."""

from __future__ import annotations

import base64
import binascii
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from plait.errors import CallFailed
from plait.event import Json
from plait.session.content import Loose, file, image

if TYPE_CHECKING:
    from mcp.types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents

Value = Json | Loose | list["Json | Loose"]


def value_of(result: CallToolResult, server: str, tool: str) -> Value:
    """Return one content as it is, several as a list.

    Structured content stands for the texts, which only repeat it.
    """
    if result.is_error:
        raise CallFailed(server, tool, _words(result) or "the server gives no reason")
    contents = [
        _content(block, server, tool)
        for block in result.content
        if result.structured_content is None or block.type != "text"
    ]
    if result.structured_content is not None:
        contents.insert(0, result.structured_content)
    return contents[0] if len(contents) == 1 else contents or ""


def _words(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _content(block: ContentBlock, server: str, tool: str) -> Json | Loose:
    if block.type == "text":
        return block.text
    if block.type == "image":
        return image(_bytes(block.data, server, tool), block.mime_type)
    if block.type == "audio":
        return file(
            _bytes(block.data, server, tool),
            f"audio.{block.mime_type.partition('/')[2] or 'bin'}",
            block.mime_type,
        )
    if block.type == "resource":
        return _resource(block.resource, server, tool)
    # A link is only named: to fetch it would be another effect.
    return block.model_dump(by_alias=True, mode="json", exclude_none=True)


def _resource(
    resource: TextResourceContents | BlobResourceContents, server: str, tool: str
) -> Loose:
    text: str | None = getattr(resource, "text", None)
    content = _bytes(getattr(resource, "blob", ""), server, tool) if text is None else text.encode()
    name = PurePosixPath(unquote(urlsplit(resource.uri).path)).name or "resource"
    return file(
        content,
        name,
        resource.mime_type or ("application/octet-stream" if text is None else "text/plain"),
    )


def _bytes(data: str, server: str, tool: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CallFailed(
            server, tool, f"the server sent content that is not base64: {error}"
        ) from error
