"""The runtime: runs, the effects of their turns, and the drivers that perform them."""
