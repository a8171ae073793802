"""confluent_kafka's admin module, without its types: it does not export all of its names to type checkers."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

confluent: Final[Any] = import_module("confluent_kafka.admin")
