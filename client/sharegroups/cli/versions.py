"""`--version`, which is the same everywhere (CT-14)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def version_option(function: F) -> F:
    """--version: print the version of the package, and end with 0."""
    return click.version_option(_version(), prog_name="sharegroups")(function)


def _version() -> str:
    try:
        return version("sharegroups")
    except PackageNotFoundError:
        return "unknown"
