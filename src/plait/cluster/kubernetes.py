"""Workers on Kubernetes: the documents that start them, and nothing that talks to a cluster.

SIGTERM drains a worker, so the documents need no hook for it: they give it the time. The address of
the store comes from a Secret, by name. A worker is ready when its store lists it; it is alive while
it touches a file, whatever the store does: a server that is away must not restart every worker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, cast

from plait.cluster.submitting import check_labels
from plait.cluster.worker import GRACE_S
from plait.errors import InvalidValue

Kind = Literal["deployment", "job", "statefulset"]
Document = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?\Z")
_SECRET = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,400}\Z")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?\Z")
_PLAIN = re.compile(r"[A-Za-z/][\w./-]*\Z")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

_TIME_TO_DRAIN_S = int(GRACE_S) + 30
_ALIVE_FILE = "/tmp/plait-alive"
_ALIVE_S = 120
_IS_FRESH = (
    f"import os, sys, time; sys.exit(time.time() - os.stat({_ALIVE_FILE!r}).st_mtime > {_ALIVE_S})"
)
_SELECTORS = {
    "linux": ("kubernetes.io/os", "linux"),
    "amd64": ("kubernetes.io/arch", "amd64"),
    "arm64": ("kubernetes.io/arch", "arm64"),
}
_GPU = "nvidia.com/gpu"


def kubernetes_document(
    kind: Kind,
    modules: Sequence[str],
    *,
    image: str,
    name: str = "plait-worker",
    labels: Iterable[str] = (),
    replicas: int = 1,
    slots: int = 4,
    secret: str = "plait-store",
    key: str = "address",
    cpu: str = "500m",
    memory: str = "512Mi",
) -> Document:
    """Return the document that starts so many workers, as a Deployment, a Job or a StatefulSet.

    The workers of a Job end when the queue is empty. Those of a StatefulSet keep their names, and
    their copies of files on a volume. `key` of the Secret `secret` has the address of the store.
    """
    for what, value, form in (
        ("image", image, _IMAGE),
        ("name", name, _NAME),
        ("secret", secret, _SECRET),
        ("key", key, re.compile(r"[\w.-]{1,253}\Z")),
        ("cpu", cpu, re.compile(r"\d+(\.\d+)?m?\Z")),
        ("memory", memory, re.compile(r"\d+(Ki|Mi|Gi)\Z")),
        *[("modules", module, _MODULE) for module in modules],
    ):
        if not form.match(value) or value.endswith(".py"):
            raise InvalidValue(what, f"{value!r:.80} is not one", "see `plait deploy k8s --help`")
    if not modules:
        raise InvalidValue("modules", "there are none", "name those that have the workflows")
    if not 1 <= replicas <= 10_000:
        raise InvalidValue("replicas", f"{replicas!r:.40} is not a count", "pass 1 to 10000")
    known = check_labels(labels, "labels")
    command = ["plait", "worker", *modules, "--name=$(POD_NAME)", f"--slots={slots}"]
    command += [f"--labels={','.join(known)}"] if known else []
    command += [f"--alive-file={_ALIVE_FILE}"] + (["--until-empty"] if kind == "job" else [])
    gpus = {_GPU: 1} if "gpu" in known else {}
    container: Document = {
        "name": "worker",
        "image": image,
        "command": command,
        "env": [
            {"name": "PLAIT_STORE", "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "resources": {
            "requests": {"cpu": cpu, "memory": memory, **gpus},
            "limits": {"memory": memory, **gpus},
        },
        "securityContext": {"allowPrivilegeEscalation": False},
        **_probes(kind),
    }
    pod = _pod(container, known, _TIME_TO_DRAIN_S)
    return _MADE[kind](name, replicas, pod)


def _probes(kind: Kind) -> Document:
    """Return the probes of a container. A worker of a Job may end before it is found ready."""
    alive = {"exec": {"command": ["python", "-c", _IS_FRESH]}}
    probes: Document = {
        "startupProbe": {**alive, "periodSeconds": 2, "failureThreshold": 60, "timeoutSeconds": 5},
        "livenessProbe": {**alive, "periodSeconds": 30, "timeoutSeconds": 5},
    }
    if kind == "job":
        return probes
    listed = {"exec": {"command": ["sh", "-c", 'plait cluster check "$POD_NAME"']}}
    ready = {**listed, "periodSeconds": 30, "timeoutSeconds": 20, "failureThreshold": 2}
    return {**probes, "readinessProbe": ready}


def _pod(container: Document, labels: Sequence[str], drain_s: int) -> Document:
    chosen = dict([_SELECTORS[label] for label in labels if label in _SELECTORS])
    tolerated = [{"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}]
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": drain_s,
        **({"nodeSelector": chosen} if chosen else {}),
        **({"tolerations": tolerated} if "gpu" in labels else {}),
        "containers": [container],
    }


def _document(kind: str, version: str, name: str, spec: Document) -> Document:
    metadata = {"name": name, "labels": _pod_labels(name)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod_labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "plait-worker", "app.kubernetes.io/instance": name}


def _deployment(name: str, replicas: int, pod: Document) -> Document:
    labels = _pod_labels(name)
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
        },
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _document("Deployment", "apps/v1", name, spec)


def _job(name: str, replicas: int, pod: Document) -> Document:
    spec = {
        "parallelism": replicas,
        "backoffLimit": 6,
        "ttlSecondsAfterFinished": 86_400,
        "template": {
            "metadata": {"labels": _pod_labels(name)},
            "spec": {**pod, "restartPolicy": "OnFailure"},
        },
    }
    return _document("Job", "batch/v1", name, spec)


def _stateful_set(name: str, replicas: int, pod: Document) -> Document:
    labels = _pod_labels(name)
    worker = pod["containers"][0]
    cached = {
        **worker,
        "env": [*worker["env"], {"name": "XDG_CACHE_HOME", "value": "/var/cache/plait"}],
        "volumeMounts": [{"name": "copies", "mountPath": "/var/cache/plait"}],
    }
    volume = {
        "metadata": {"name": "copies"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    spec = {
        "serviceName": name,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {**pod, "containers": [cached]}},
        "volumeClaimTemplates": [volume],
    }
    return _document("StatefulSet", "apps/v1", name, spec)


_MADE = {"deployment": _deployment, "job": _job, "statefulset": _stateful_set}


# ── YAML ─────────────────────────────────────────────────────────────────────────────────────


def yaml_text(document: Document) -> str:
    """Write a document of texts, numbers, lists and objects as YAML."""
    return "".join(f"{line}\n" for line in _yaml_lines(document))


def _yaml_lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in cast("Document", value).items():
            yield from _yaml_item(f"{_scalar(name)}:", each)
        return
    for each in value:
        if isinstance(each, (dict, list)):
            inner = list(_yaml_lines(cast("Any", each)))
            yield f"- {inner[0]}"
            yield from (f"  {line}" for line in inner[1:])
        else:
            yield f"- {_scalar(each)}"


def _yaml_item(head: str, value: Any) -> Iterator[str]:
    if not isinstance(value, (dict, list)):
        yield f"{head} {_scalar(value)}"
        return
    yield head
    yield from (f"  {line}" for line in _yaml_lines(cast("Any", value)))


def _scalar(value: object) -> str:
    """Write a text as it is if YAML reads it as this text; else as JSON, which is YAML, too."""
    is_plain = isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS
    return str(value) if is_plain else json.dumps(value)
