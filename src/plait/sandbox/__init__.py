"""Where tools run."""

from plait.sandbox.base import (
    VIEW_MAX,
    Backend,
    Capability,
    Held,
    Limits,
    Network,
    OnOutput,
    Output,
    Probe,
    Ran,
    Sandbox,
    Wanted,
)

__all__ = [
    "VIEW_MAX",
    "Backend",
    "Capability",
    "Held",
    "Limits",
    "Network",
    "OnOutput",
    "Output",
    "Probe",
    "Ran",
    "Sandbox",
    "Wanted",
]
