"""The options by which a command is given a store, declared once (CM-200, CT-140).

No option takes a password: process lists show arguments.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from kip932.store_settings import StoreAccess, read_store
from shard_runtime.config.process_settings import PREFIX
from shard_runtime.record_log.redis.connection import Store
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.store_url import with_password


def _variable(context: click.Context, option: click.Parameter, name: str) -> str:
    del context, option
    if name.startswith(PREFIX):
        raise click.UsageError(
            f"--password-env {name}: variables whose names begin with {PREFIX} are settings of a node; use another "
            f"name, such as {name.removeprefix(PREFIX) or 'STORE_PASSWORD'}"
        )
    return name


password_option: Final[Callable[[Any], Any]] = click.option(
    "--password-env",
    default="",
    metavar="NAME",
    callback=_variable,
    help="The environment variable that holds the password of --store.",
)
config_option: Final[Callable[[Any], Any]] = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Settings file (TOML), as a node's: its store.* say where the store is, and how to reach it.",
)


def url_with_password(url: str | None, variable: str) -> str:
    """Return the URL with the variable's password; without a variable, the URL as it is. Raises click.UsageError."""
    if url is None:
        raise click.UsageError("--password-env is for the store given by --store, but none is given")
    if not variable:
        return url
    if variable not in os.environ:
        raise click.UsageError(f"--password-env {variable}: the environment has no variable of this name")
    try:
        return with_password(url, os.environ[variable])
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The store that a command was given: by a URL, by settings, or by the data directory of an embedded one."""

    store: str | None = None
    password_env: str = ""
    config: Path | None = None
    data: Path | None = None

    @property
    def is_given(self) -> bool:
        """Return whether options choose it; the environment alone may choose it, too."""
        return bool(self.store or self.config or self.data or self.password_env)

    @property
    def is_named(self) -> bool:
        """Return whether the options alone, without the environment, say which store it is. Raises ClickException."""
        if self.store or self.data:
            return True
        return self.config is not None and bool(self._read({})[0])

    def url(self) -> str:
        """Return the URL that options, environment or file give, "" when none does. Raises ClickException."""
        return self._read()[0]

    def checked(self) -> StoreChoice:
        """Return this if it is one store. Raises UsageError, and ClickException for settings that cannot be read."""
        by_settings = bool(self.store or self.config or self.password_env)
        if self.data is not None and by_settings:
            raise click.UsageError("give either --store URL or --data DIR, not both; --config is for the former")
        if self.data is None and not self.url():
            missing = "" if self.config is None else f"; {self.config} has no store.url"
            raise click.UsageError(f"give either --store URL or --data DIR, or --config FILE with store.url{missing}")
        return self

    def opened(self) -> Store:
        """Return the store of the settings, not connected yet. Raises UsageError, ClickException, ValueError."""
        url, access = self._read()
        if self.password_env:
            access = replace(access, password=None)
        return open_store(url_with_password(url or None, self.password_env), access=access)

    def _read(self, environ: Mapping[str, str] = os.environ) -> tuple[str, StoreAccess]:
        try:
            return read_store(self.store or "", environ, self.config)
        except ValueError as error:
            raise click.ClickException(str(error)) from error


def which_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the store; the command gets them as `where`."""

    @functools.wraps(command)
    def chosen(
        *args: Any, store: str | None, password_env: str, config: Path | None, data: Path | None, **given: Any
    ) -> Any:
        return command(*args, where=StoreChoice(store, password_env, config, data), **given)

    option = click.option(
        "--data",
        type=click.Path(path_type=Path),
        help="Or the data directory of `sharegroups up`, which need not run.",
    )
    with_store: Callable[..., Any] = click.option("--store", metavar="URL", help="The store.")(
        password_option(config_option(option(chosen)))
    )
    return with_store
