"""Prints the JSON documents of `plait.outline.documents`.

Everything beyond ASCII is escaped, so that no byte of it means anything to a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from plait.outline.documents import Document


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2))


def print_jsonl(documents: Iterable[Document]) -> None:
    for document in documents:
        click.echo(json.dumps(document))
