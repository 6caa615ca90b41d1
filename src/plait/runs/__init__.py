"""Runs whose program is called again: resume, replay, what-if.

All three call the same `forward` from the value at which its run started, and answer its calls from
the recording. They differ in what comes after: `resume` goes on live, `replay` ends there, `whatif`
goes on live in a branch, with something changed.

They are no modules of `plait` itself: `plait.resume` is the function, and importing a module of
that name would put the module in its place.
"""
