"""The command line."""

from plait.cli.main import main

__all__ = ["main"]
