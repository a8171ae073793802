"""Shared by the commands about access control entries: the types of their options, and how entries are printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

import click
from click.shell_completion import CompletionItem

from kip932.acls import (
    ANY_HOST,
    ANY_PRINCIPAL,
    PRINCIPAL_TYPE,
    Acl,
    Operation,
)
from kip932.errors import KafkaError
from kip932.nearest_name import nearest_name
from sharegroups.cli.output import Name, print_stderr

HEADER: Final = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
WIDTHS: Final = (16, 15, 8, 15, 15, 16, 0)
_FIELDS: Final = (
    "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type",
)  # fmt: skip
#: Kafka's spelling of each operation, such as DescribeConfigs.
SPELLINGS: Final[Mapping[Operation, str]] = {
    each: each.name.title().replace("_", "") for each in sorted(Operation, key=lambda each: each.name)
    if each is not Operation.ANY
}  # fmt: skip
_BY_SPELLING: Final = {spelling.lower(): operation for operation, spelling in SPELLINGS.items()}


class OperationName(click.ParamType[Operation]):
    """An operation in Kafka's spelling, such as DescribeConfigs, or as in an entry: DESCRIBE_CONFIGS. Ignores case."""

    name = "operation"

    def __init__(self, but: Iterable[Operation] = ()) -> None:
        self._known = [spelling for operation, spelling in SPELLINGS.items() if operation not in set(but)]

    def convert(self, value: str | Operation, param: click.Parameter | None, ctx: click.Context | None) -> Operation:
        """Return the operation. Raises click.BadParameter for any other word."""
        if isinstance(value, Operation):
            return value
        plain = value.replace("_", "").replace("-", "").lower()
        found = _BY_SPELLING.get(plain)
        if found is None or SPELLINGS[found] not in self._known:
            meant = nearest_name(plain, [known.lower() for known in self._known])
            hint = "" if meant is None else f" Did you mean {SPELLINGS[_BY_SPELLING[meant]]!r}?"
            what = "not an operation" if found is None else "not one operation"
            self.fail(f"{value!r} is {what}; expected one of {', '.join(self._known)}.{hint}", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the operations that begin with a word, ignoring case."""
        return [CompletionItem(known) for known in self._known if known.lower().startswith(incomplete.lower())]


class Text(Name):
    """A name that is not blank and is UTF-8, as all texts of an entry are."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged. Raises click.BadParameter."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8, which all names in access control entries are", param, ctx)
        return super().convert(value, param, ctx)


class Principal(Text):
    """`User:` and a name. `everyone`: whether `User:*` is accepted."""

    name = "principal"

    def __init__(self, *, everyone: bool) -> None:
        self._everyone = everyone

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the principal unchanged. Raises click.BadParameter."""
        super().convert(value, param, ctx)
        kind, colon, user = value.partition(":")
        if kind != PRINCIPAL_TYPE or not user.strip():
            expected = f"{PRINCIPAL_TYPE}:NAME" + (f", or {ANY_PRINCIPAL} for everyone" if self._everyone else "")
            self.fail(f"{value!r} is not a principal; expected {expected}.{_meant(kind, colon, user)}", param, ctx)
        if value == ANY_PRINCIPAL and not self._everyone:
            self.fail(f"{value!r} is everyone; expected one caller, {PRINCIPAL_TYPE}:NAME", param, ctx)
        return value


def _meant(kind: str, colon: str, user: str) -> str:
    """Return the hint for a principal without `User:`, or with a misspelt one."""
    if not colon:
        return f" Did you mean '{PRINCIPAL_TYPE}:{kind}'?"
    if user.strip() and nearest_name(kind.title(), [PRINCIPAL_TYPE]) is not None:
        return f" Did you mean '{PRINCIPAL_TYPE}:{user}'?"
    return ""


class Host(Text):
    """An IP address, written as the nodes write it. `any_host`: `*` is accepted; `any_text`: so is other text, for
    entries that exist.

    The nodes compare an entry with the address that a call comes from, so an entry with any other name has no effect.
    """

    name = "host"

    def __init__(self, *, any_host: bool, any_text: bool = False) -> None:
        self._any_host = any_host
        self._any_text = any_text

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the address. Raises click.BadParameter for any other text."""
        super().convert(value, param, ctx)
        if self._any_host and value == ANY_HOST:
            return value
        try:
            address = ip_address("" if "%" in value else value)
            return str(getattr(address, "ipv4_mapped", None) or address)
        except ValueError:
            if self._any_text:
                return value
            other = ", or * for any" if self._any_host else ""
            self.fail(f"{value!r} is not an IP address; expected the address that calls come from{other}", param, ctx)


TEXT: Final = Text()


def cells(acl: Acl) -> tuple[str, ...]:
    """Return an entry as a row of the table."""
    return tuple(each.name if isinstance(each, IntEnum) else str(each) for each in acl)


def document(acl: Acl) -> dict[str, str]:
    """Return an entry for `--output json`. A number that this version does not know is a text of digits."""
    return dict(zip(_FIELDS, cells(acl), strict=True))


def outcome_documents(outcomes: Mapping[Acl, KafkaError | None]) -> list[dict[str, str | None]]:
    """Return each entry with its error, or null, for `--output json`."""
    return [
        {
            **document(acl),
            "error": None if error is None else error.name,
            "message": None if error is None else error.message,
        }
        for acl, error in outcomes.items()
    ]


def print_failures(outcomes: Mapping[Acl, KafkaError | None], done: str) -> None:
    """Print a line for each entry that has an error. `done`: what was to be done with it, as in `added`."""
    for acl, error in outcomes.items():
        if error is not None:
            print_stderr(f"Error: not {done}: {acl.text}: {error.name}: {error.message}")
