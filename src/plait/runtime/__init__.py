"""The runtime: what makes things happen."""
