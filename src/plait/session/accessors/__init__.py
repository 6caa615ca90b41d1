"""Views over a session by subject: its inbox, budget, checks, files and lineage."""

from plait.session.accessors.budget import SessionBudget
from plait.session.accessors.checks import SessionChecks
from plait.session.accessors.files import SessionFiles
from plait.session.accessors.inbox import SessionInbox
from plait.session.accessors.lineage import SessionLineage

__all__ = ["SessionBudget", "SessionChecks", "SessionFiles", "SessionInbox", "SessionLineage"]
