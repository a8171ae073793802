"""`--password-env`: takes the store's password from a variable, since process lists show a URL in the arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import click

from shard_runtime.record_log.store_url import with_password

password_option: Final[Callable[[Any], Any]] = click.option(
    "--password-env", default="", metavar="NAME", help="The environment variable that holds the password of --store."
)


def url_with_password(url: str | None, variable: str) -> str:
    """Return the URL with the variable's password; without a variable, the URL as it is. Raises click.UsageError."""
    if url is None:
        raise click.UsageError("--password-env is for the store given by --store, and none is given")
    if not variable:
        return url
    if variable not in os.environ:
        raise click.UsageError(f"--password-env {variable}: the environment has no variable of this name")
    try:
        return with_password(url, os.environ[variable])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
