"""How the tools make their clients: all in this one place, so that a test can put a cluster in memory behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

ClientT = TypeVar("ClientT")


def open_client(kind: Callable[[Mapping[str, Any]], ClientT], settings: Mapping[str, Any]) -> ClientT:
    """A client of this kind (`Admin`, `Producer`, `ShareConsumer`). Call it through this module. Raises ConfigError."""
    return kind(settings)
