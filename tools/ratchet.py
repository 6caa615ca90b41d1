"""The coverage ratchet: branch coverage never goes down, and when it goes up the
new floor is kept.
"""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path

import coverage

FLOOR = Path(__file__).with_name("coverage-floor.txt")


def main() -> int:
    data = coverage.Coverage()
    data.load()
    report = io.StringIO()
    found = math.floor(data.report(file=report) * 10) / 10
    floor = float(FLOOR.read_text())
    if found < floor:
        print(report.getvalue())
        print(
            f"coverage fell to {found} % from {floor} %. Cover what you added; the lines are listed"
            " above."
        )
        return 1
    if found >= floor + 1:
        print(
            f"coverage is {found} %, the floor {floor} %: raise it in {FLOOR.name} so that it"
            " stays."
        )
    else:
        print(f"coverage {found} % (floor {floor} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
