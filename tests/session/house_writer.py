"""A process that appends to the house log, and says so: STORE NAME COUNT."""

from __future__ import annotations

import sys

from plait import open_store
from plait.event.kinds import PrincipalChanged
from plait.session.house import append_to_house
from plait.session.ports import Act, Draft

address, name, count = sys.argv[1:]
open_store(address.removeprefix("sqlite:"))
for n in range(int(count)):
    body = PrincipalChanged(f"{name}-{n}", "added")
    append_to_house(address, [Draft(body, Act(f"human:{name}", "human"))])
    print(n, flush=True)
