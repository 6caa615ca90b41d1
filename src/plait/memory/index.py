"""Indexes."""

from __future__ import annotations

from typing import Any

Index = Any
