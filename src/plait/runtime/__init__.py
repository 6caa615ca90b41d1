"""The runtime: runs, the effects of their agents, and the drivers that perform them."""
