"""Copying sessions from one store to another: the same logs, events and blobs.

`plan.py` finds the logs that have to go together, `left_out.py` those that cannot go, `transfer.py`
brings blobs and events over in the order of their commits, and `copy.py` moves the sessions whose
runs are open. All of it goes by the protocol of stores, so any two stores will do.
"""

from plait.copying.copy import CopyResult, SessionLeftOut, copy_sessions

__all__ = ["CopyResult", "SessionLeftOut", "copy_sessions"]
