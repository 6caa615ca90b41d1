"""`plait export`: spans as a receiver gets them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from plait import Session
from plait.export.calls import spans_of
from tests.cli.shell import Shell, shell
from tests.export.contest import SECRET, session
from tests.export.receiver import attributes_of, span_server

__all__ = ["session", "shell"]


def test_a_receiver_gets_every_span(shell: Shell, session: Session) -> None:
    with span_server() as server:
        told = shell.json("export", session.short, "--otlp", server.address)
    wanted = spans_of(session).spans
    assert (told["spans"], told["traces"], told["open"]) == (len(wanted), 1, 0)
    assert server.paths == ["/v1/traces"]
    assert [(span.trace_id.hex(), span.span_id.hex()) for span in server.spans] == [
        (span.trace, span.id) for span in wanted
    ]
    for got, span in zip(server.spans, wanted, strict=True):
        assert got.name == span.name and got.parent_span_id.hex() == (span.parent or "")
        assert attributes_of(got) == {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in span.attributes.items()
        }
        assert (got.start_time_unix_nano, got.end_time_unix_nano) == (
            span.start * 1000,
            span.end * 1000,
        )
        assert (got.status.code == 2) == bool(span.error)
        assert [(attributes_of(link)["plait.link"], link.span_id.hex()) for link in got.links] == [
            (link.connection, link.span) for link in span.links
        ]


def test_the_resource_tells_the_conventions(shell: Shell, session: Session) -> None:
    with span_server() as server:
        shell("export", session.short, "--otlp", server.address)
    (resource,) = server.resources
    told = attributes_of(resource.resource)
    name = "opentelemetry-semantic-conventions"
    assert told["plait.conventions"] == f"{name} {version(name)}"
    assert told["service.name"] == "plait"
    assert resource.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_sent_again_they_are_the_same_bytes(shell: Shell, session: Session) -> None:
    with span_server() as server:
        for _ in range(2):
            shell("export", session.short, "--otlp", server.address)
    first, second = [request.SerializeToString(deterministic=True) for request in server.requests]
    assert first == second


def test_content_is_sent_only_by_the_word(shell: Shell, session: Session) -> None:
    with span_server() as server:
        shell("export", session.short, "--otlp", server.address)
        assert SECRET.encode() not in server.requests[0].SerializeToString()
        shell("export", session.short, "--otlp", server.address, "--content")
        assert SECRET.encode() in server.requests[1].SerializeToString()


def test_a_receiver_that_is_not_there(shell: Shell, session: Session) -> None:
    with span_server() as server:
        address = server.address
    error = shell.error(75, "export", session.short, "--otlp", address)
    wanted = f"the receiver of spans at {address}/v1/traces cannot be reached: Connection refused"
    assert wanted in error and "check how it is started" in error
    assert session.reload() == session


def test_a_receiver_that_refuses(shell: Shell, session: Session) -> None:
    with span_server(status=401) as server:
        error = shell.error(2, "export", session.short, "--otlp", server.address)
    assert "does not take spans: 401 Unauthorized" in error
    assert "OTEL_EXPORTER_OTLP_HEADERS" in error


@pytest.mark.parametrize("address", ["ftp://there", "127.0.0.1:4318", "http://"])
def test_an_address_that_is_none(shell: Shell, session: Session, address: str) -> None:
    error = shell.error(2, "export", session.short, "--otlp", address)
    assert "http://127.0.0.1:4318" in error


def test_other_commands_do_not_load_the_vendor(shell: Shell, session: Session) -> None:
    program = (
        "import atexit, sys; from plait.cli import main\n"
        "vendor = lambda: [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "atexit.register(lambda: print('loaded:', vendor()))\n"
        f"main(['log', {session.short!r}, '--store', {shell.address!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded: []", done.stdout + done.stderr
