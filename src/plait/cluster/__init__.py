"""A cluster: durable sessions are routed to workers, and outlive them.

To submit is to start a run that no process has. A worker does what `resume` does after a crash at
that very place, so a first start, a takeover, a wake-up and a retry are one operation. There is no
second journal: the log of a session is the only truth, and the store is queue, lock and clock.
"""

from plait.cluster.choosing import ProjectShare
from plait.cluster.cluster import Cluster, Task
from plait.cluster.driving import drive
from plait.cluster.job_state import JobCondition, JobIndex
from plait.cluster.jobs import Job
from plait.cluster.keeping import Kept
from plait.cluster.outcomes import Outcome
from plait.cluster.worker import Worker
from plait.cluster.workers import WorkerNotice

__all__ = [
    "Cluster",
    "Job",
    "JobCondition",
    "JobIndex",
    "Kept",
    "Outcome",
    "ProjectShare",
    "Task",
    "Worker",
    "WorkerNotice",
    "drive",
]
