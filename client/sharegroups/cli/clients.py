"""Creates the clients of all commands in one place, so that a test can replace the cluster with one in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

ClientT = TypeVar("ClientT")


def open_client(kind: Callable[[Mapping[str, Any]], ClientT], settings: Mapping[str, Any]) -> ClientT:
    """Return a new client of this kind (`Admin`, `Producer`, `ShareConsumer`). Raises ConfigError.

    Call it as `clients.open_client`: tests replace it in this module.
    """
    return kind(settings)
