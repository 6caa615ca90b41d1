"""Sessions for other systems: `export`."""

from __future__ import annotations

import click

from plait.cli.common import Options, acting_command
from plait.cli.documents import print_json
from plait.cli.render import Out, count_text


@click.command("export")
@click.argument("session", metavar="[S]", default="@")
@click.option(
    "--otlp",
    "receiver_address",
    metavar="URL",
    required=True,
    help="The receiver, by OTLP over HTTP: http://127.0.0.1:4318.",
)
@click.option(
    "--content",
    is_flag=True,
    help="Send what was said, too: replies, arguments, results, queries, failures.",
)
@acting_command
def export_command(given: Options, session: str, receiver_address: str, content: bool) -> None:
    """Send the calls of a session as OpenTelemetry spans.

    A span per run, workflow, agent, request to a model, tool call and recall that has ended, of S
    and of all that `plait cost S` counts. Their ids follow from the record: sent again, they are
    the same spans. Needs the extra [otel].
    """
    from plait.export.calls import spans_of
    from plait.export.otlp import Receiver

    found = spans_of(given.open(session), content=content)
    receiver = Receiver(receiver_address)
    try:
        receiver.send(found.spans)
    finally:
        receiver.close()
    traces = len({span.trace for span in found.spans})
    if given.form != "text":
        print_json(
            {
                "address": receiver.address,
                "spans": len(found.spans),
                "traces": traces,
                "open": found.open_count,
                "content": content,
            }
        )
        return
    spans = count_text(len(found.spans), "span")
    click.echo(f"{spans} in {count_text(traces, 'trace')} to {receiver.address}")
    if found.open_count:
        calls = count_text(found.open_count, "call")
        Out(stderr=True).hint(f"{calls} not ended: not sent. Export again when it has.")
