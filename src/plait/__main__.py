"""`python -m plait`: the same as `plait`, where that is not on the path of the shell."""

from __future__ import annotations

from plait.cli import main

if __name__ == "__main__":
    main(prog_name="plait")
