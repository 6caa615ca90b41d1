"""Calls, as pure state: fed with their events, they say what is due next.

Nothing here knows a store, a run or a thread.
"""
