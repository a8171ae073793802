"""The option `--version`, which is the same for every command (CT-14)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def version_option(function: F) -> F:
    """Add --version, which prints the version of the package and exits with 0."""
    return click.version_option(_version(), prog_name="sharegroups")(function)


def _version() -> str:
    try:
        return version("sharegroups")
    except PackageNotFoundError:
        return "unknown"
