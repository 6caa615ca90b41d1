"""Prints JSON documents for programs. `plait.outline.documents` makes them."""

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
