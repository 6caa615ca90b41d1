# pyright: basic, reportMissingImports=false
"""Run by Ray's own Python: two nodes, three workers, one node removed under load."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster as RayNodes

given = json.load(sys.stdin)
folder = Path(given["folder"])
sys.path.insert(0, str(folder))  # of this process alone: Ray sends the package

from shopflows.flows import Notes  # noqa: E402

from plait import Session, open_store  # noqa: E402
from plait.cluster import Cluster  # noqa: E402
from plait.cluster.ray import RayCluster  # noqa: E402
from plait.event import kinds as k  # noqa: E402
from plait.session import verify  # noqa: E402

store = open_store(folder / ".plait")
nodes = RayNodes(
    initialize_head=True,
    head_node_args={"num_cpus": 2, "resources": {"linux": 1}, "include_dashboard": False},
)
second = nodes.add_node(num_cpus=3, resources={"gpu": 1, "linux": 1})
out = folder / "out"
cluster = Cluster(store)
tasks = [
    cluster.submit(Notes(), Session(f"{n}", store=store), path=str(out), steps=6) for n in range(16)
]
with_gpu = cluster.submit(
    Notes(), Session("gpu", store=store), path=str(out), steps=6, need={"gpu"}
)
report = {}
with RayCluster(
    nodes.address,
    {"linux": 2, "gpu": 1},
    store=folder / ".plait",
    modules=["shopflows.flows"],
    slots=2,
) as workers:
    until = time.monotonic() + 90
    while len(cluster.workers()) < 3 and time.monotonic() < until:
        time.sleep(0.1)
    report["workers"] = sorted(label for each in cluster.workers() for label in each.labels)
    while not out.exists() or len(out.read_text().splitlines()) < 8:
        time.sleep(0.02)
    nodes.remove_node(second, allow_graceful=False)
    report["ended"] = [task.result(120).text for task in tasks]
    report["without a node"] = with_gpu.why if not with_gpu.is_over() else "over"
    nodes.add_node(num_cpus=3, resources={"gpu": 1, "linux": 1})
    report["with gpu"] = with_gpu.result(120).text
    report["actors"] = len(workers)
report["left"] = [each.name for each in cluster.workers()]
lines = out.read_text().splitlines()
report["lines"], report["effects"] = len(set(lines)), len(lines)
claims = [
    event.body.claim
    for task in [*tasks, with_gpu]
    for event in task.session.events
    if isinstance(event.body, k.RunResumed) and event.body.claim
]
report["codes"] = len({claim.code for claim in claims})
started: Any = tasks[0].session.events[2].body
report["same code"] = started.wishes.code == claims[0].code
report["taken over"] = sum([claim.chosen == "taken over" for claim in claims])
report["problems"] = [str(each) for each in verify(store)]
ray.shutdown()
nodes.shutdown()
print("\n" + json.dumps(report))
