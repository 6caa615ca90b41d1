"""`plait deploy`: documents that start workers elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from plait.cli.documents import print_json
from plait.cli.workers import split_labels


@click.group("deploy", no_args_is_help=False)
def deploy() -> None:
    """Documents that start workers on other machines: k8s."""


@deploy.command("k8s")
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True)
@click.option("--image", required=True, help="With Plait, Python and the modules in it.")
@click.option(
    "--kind",
    type=click.Choice(["deployment", "job", "statefulset"]),
    default="deployment",
    help="Job: until the queue is empty. StatefulSet: names and copies of files stay.",
)
@click.option("--labels", default="", metavar="A,B", help="gpu asks for one; linux, arm64 select.")
@click.option("--replicas", type=int, default=1, help="How many workers.")
@click.option("--slots", type=int, default=4, help="How many runs at a time each; 4 without it.")
@click.option("--name", default="plait-worker", help="Of the document, and before its pods' names.")
@click.option(
    "--secret",
    default="plait-store",
    metavar="NAME",
    help="The Secret that has the address of the store; plait-store without it.",
)
@click.option("--key", default="address", help="The key in it; address without it.")
@click.option("--cpu", default="500m", help="For each worker, as 500m or 2.")
@click.option("--memory", default="512Mi", help="For each worker, as 512Mi or 2Gi.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def deploy_k8s(
    modules: Sequence[str],
    image: str,
    kind: Literal["deployment", "job", "statefulset"],
    labels: str,
    replicas: int,
    slots: int,
    name: str,
    secret: str,
    key: str,
    cpu: str,
    memory: str,
    as_json: bool,
) -> None:
    """Print the document that starts workers on Kubernetes, for `kubectl apply -f -`.

    No secret is in it: the address of the store comes from a Secret of the cluster, as made by
    `kubectl create secret generic plait-store --from-literal=address=postgresql://…`.
    """
    from plait.cluster.kubernetes import kubernetes_document, yaml_text

    document = kubernetes_document(
        kind,
        modules,
        image=image,
        name=name,
        labels=split_labels(labels),
        replicas=replicas,
        slots=slots,
        secret=secret,
        key=key,
        cpu=cpu,
        memory=memory,
    )
    print_json(document) if as_json else click.echo(yaml_text(document), nl=False)
