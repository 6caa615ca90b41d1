"""The journal: the one room that knows what is recorded and what is live.

A run appends through its `Journal`, and asks it for the recorded events of a call. Resumed or
replayed, the same questions are answered from the recording, and only what lies beyond is written.
"""
