"""Sessions: the value, its folds, and the questions one can ask of it."""

from plait.session.ask_rows import InboxRows
from plait.session.audit import verify
from plait.session.content import file, image
from plait.session.copy_rows import CopyRows
from plait.session.diff import Diff
from plait.session.effect_rows import EffectRows
from plait.session.graph import Graph
from plait.session.graph_rows import GraphRows
from plait.session.job_rows import JobRows
from plait.session.life import Status
from plait.session.rows import SessionRows
from plait.session.session import Session
from plait.session.state import ABSENT, Fact, Pending, State
from plait.session.trace import Trace
from plait.session.turn_rows import TurnRows
from plait.session.views import Facts, Message, Waiting

__all__ = [
    "ABSENT",
    "Diff",
    "CopyRows",
    "EffectRows",
    "Fact",
    "Facts",
    "Graph",
    "GraphRows",
    "InboxRows",
    "JobRows",
    "Message",
    "Pending",
    "Session",
    "SessionRows",
    "State",
    "Status",
    "Trace",
    "TurnRows",
    "Waiting",
    "file",
    "image",
    "verify",
]
