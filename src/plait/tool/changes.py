"""The difference between an observed state before and after a call."""

from __future__ import annotations

from collections.abc import Mapping

from plait.event import Json


def difference(before: Json, after: Json) -> Json:
    """Return the changes of an observed state: by key where it has keys, whole otherwise.

    None: it did not change.
    """
    if before == after:
        return None
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return {
            key: _sides(before, after, key)
            for key in keys
            if (key in before) != (key in after) or before.get(key) != after.get(key)
        }
    return {"before": before, "after": after}


def _sides(before: Mapping[str, Json], after: Mapping[str, Json], key: str) -> Json:
    return {name: side[key] for name, side in (("before", before), ("after", after)) if key in side}
