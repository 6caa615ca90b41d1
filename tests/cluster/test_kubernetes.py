"""The documents that start workers on Kubernetes, and what they rest on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner

from plait import Session
from plait.cli import main
from plait.cluster import Cluster
from plait.cluster.kubernetes import Kind, kubernetes_document, yaml_text
from plait.errors import InvalidValue
from plait.store import Store
from tests.cluster.conftest import FLOWS
from tests.cluster.flows import Count
from tests.cluster.test_workers import LONG_S
from tests.support import child_environment, wait_until

kubernetes_validate: Any = import_module("kubernetes_validate")
KINDS: tuple[Kind, ...] = get_args(Kind)
VERSIONS = ("1.30", "1.34", kubernetes_validate.latest_version())


def printed(*options: str) -> str:
    result = CliRunner().invoke(
        main, ["deploy", "k8s", "shop.flows", "--image", "shop:1", *options]
    )
    assert result.exit_code == 0, result.output
    return result.output


def container_of(document: dict[str, Any]) -> dict[str, Any]:
    (container,) = document["spec"]["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_valid(kind: Kind) -> None:
    text = printed("--kind", kind, "--labels", "gpu,linux,arm64", "--replicas", "3")
    document = yaml.safe_load(text)
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)
    assert document == json.loads(printed("--kind", kind, "--labels", "gpu,linux,arm64",
                                          "--replicas", "3", "--json"))  # fmt: skip
    pod = document["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
    assert container_of(document)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["terminationGracePeriodSeconds"] > 30


def test_a_document_that_is_wrong_is_found() -> None:
    document = yaml.safe_load(printed())
    container_of(document)["livenessProbes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_a_document_has_no_secret(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_STORE", "postgresql://plait:hunter2@db/agents")
    text = printed("--secret", "team-store", "--key", "url")
    assert "hunter2" not in text and "postgresql" not in text
    (address, _) = container_of(yaml.safe_load(text))["env"]
    reference = {"secretKeyRef": {"name": "team-store", "key": "url"}}
    assert address == {"name": "PLAIT_STORE", "valueFrom": reference}


@pytest.mark.parametrize(
    "how",
    [
        {"image": "shop 1"},
        {"name": "Shop"},
        {"secret": "a_b"},
        {"replicas": 0},
        {"labels": ["a b"]},
        {"modules": []},
        {"modules": ["flows.py"]},
        {"modules": ["--store"]},
        {"cpu": "many"},
        {"memory": "2"},
    ],
)
def test_what_kubernetes_would_refuse_is_refused(how: dict[str, Any]) -> None:
    given: dict[str, Any] = {"modules": ["shop.flows"], "image": "shop:1", **how}
    with pytest.raises(InvalidValue):
        kubernetes_document("deployment", given.pop("modules"), **given)


def test_texts_that_yaml_reads_as_something_else_are_quoted() -> None:
    document = {
        "texts": [
            "yes",
            "No",
            "1",
            "1e3",
            "",
            "a: b",
            "- a",
            "$(X)",
            "#",
            "null",
            "ü",
            "0x1f",
            "~",
        ],
        "numbers": [1, 1.5, True, False],
        "1": {"a": [{"b": "c", "d": ["e"]}, "f"]},
    }
    assert yaml.safe_load(yaml_text(document)) == document


# ── what the documents rest on ───────────────────────────────────────────────────────────────


@pytest.mark.long
def test_the_command_and_the_probes_of_a_document_work(store: Store, tmp_path: Path) -> None:
    """The container's command and probes are executed as the kubelet would, on this machine."""
    document = kubernetes_document("statefulset", [FLOWS], image="shop:1", labels=["linux"])
    container = container_of(document)
    alive = str(tmp_path / "alive")
    environment = child_environment(
        PLAIT_STORE=store.address,
        POD_NAME="plait-worker-0",
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    )

    def local(command: list[str]) -> list[str]:
        named = [word.replace("$(POD_NAME)", "plait-worker-0") for word in command]
        return [word.replace("/tmp/plait-alive", alive) for word in named]

    def exit_code(probe: str) -> int:
        command = local(container[probe]["exec"]["command"])
        return subprocess.run(command, env=environment, capture_output=True).returncode

    assert exit_code("startupProbe") != 0 and exit_code("readinessProbe") == 3
    worker = subprocess.Popen(local(container["command"]), env=environment)
    wait_until(lambda: exit_code("startupProbe") == 0)
    wait_until(lambda: exit_code("readinessProbe") == 0)
    assert exit_code("livenessProbe") == 0
    worker.send_signal(signal.SIGSTOP)
    os.utime(alive, (0, 0))  # as if it had been stuck for long
    assert exit_code("livenessProbe") == 1
    worker.send_signal(signal.SIGCONT)
    worker.terminate()
    assert worker.wait(LONG_S) == 0
    assert exit_code("readinessProbe") == 3


@pytest.mark.long
def test_the_command_of_a_job_ends_with_the_queue(store: Store, tmp_path: Path) -> None:
    document = kubernetes_document("job", [FLOWS], image="shop:1")
    tasks = [Cluster(store).submit(Count(), Session(f"{n}", store=store)) for n in range(5)]
    later = Cluster(store).submit(Count(), Session("Hi", store=store), delay_s=3600)
    elsewhere = Cluster(store).submit(Count(), Session("Hi", store=store), need={"gpu"})
    command = container_of(document)["command"]
    command = [word.replace("/tmp/plait-alive", str(tmp_path / "alive")) for word in command]
    command = [word.replace("$(POD_NAME)", "job-0") for word in command]
    environment = child_environment(PLAIT_STORE=store.address)
    command = [sys.executable, "-m", *command]
    assert subprocess.run(command, env=environment, timeout=LONG_S).returncode == 0
    assert [task.result(0).text for task in tasks] == ["counted"] * 5
    assert not later.is_over() and not elsewhere.is_over()
