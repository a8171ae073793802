"""What a page is made from and what it becomes: a request of a signed-in user, and a template with values (CT-161)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import click

from kip932.ids import OFFSET_MAX, TopicPartition
from sharegroups.admin import Admin
from sharegroups.cli.output import lines_to
from sharegroups.console.sessions import Session
from sharegroups.console.tasks import Tasks

#: How many lines that a part of a command prints are kept for its page.
_LINES_MAX: Final = 100


class RefusedError(Exception):
    """What was asked for cannot be done; the message says why, and what to do."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class Page:
    """A template and its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Moved:
    """Another page of the console, to be shown instead."""

    url: str


@dataclass(frozen=True, slots=True)
class Visit:
    """One request. `fields`: the form's, or those of the address, in order; `client`: the address it came from."""

    session: Session
    tasks: Tasks
    fields: Sequence[tuple[str, str]]
    client: str
    now_ms: int
    path: str = "/"

    @property
    def admin(self) -> Admin:
        """The user's admin client."""
        return self.session.admin

    def text(self, name: str, default: str = "") -> str:
        """Return a field without surrounding blanks; `default` if it is absent or empty."""
        return next((value.strip() for key, value in self.fields if key == name and value.strip()), default)

    def exact(self, name: str) -> str:
        """Return a field unchanged; "" if it is absent."""
        return next((value for key, value in self.fields if key == name), "")

    def texts(self, name: str) -> list[str]:
        """Return all fields of this name."""
        return [value for key, value in self.fields if key == name]

    def required(self, name: str) -> str:
        """Return a field unchanged. Raises RefusedError if it is absent or blank."""
        value = self.exact(name)
        if not value.strip():
            raise RefusedError(f"The address or form does not say which {name}. Go back, and choose one.")
        return value

    def number(self, name: str, default: int = 0) -> int:
        """Return a whole number from 0 on. Raises RefusedError."""
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdecimal()) or len(value) > 19 or int(value) > OFFSET_MAX:
            raise RefusedError(f"{name} is {value!r}; expected a whole number from 0 on.")
        return int(value)

    def partition(self) -> TopicPartition:
        """Return the partition that `topic` and `partition` name. Raises RefusedError."""
        number = self.number("partition")
        if number >= 2**31:
            raise RefusedError(f"partition is {number}; expected less than 2147483648.")
        return TopicPartition(self.required("topic"), number)


Handler = Callable[[Visit], Page | Moved]


def link(path: str, **fields: object) -> str:
    """Return an address of the console; fields that are None or empty are left out."""
    named = [(name, str(value)) for name, value in fields.items() if value not in (None, "")]
    return f"{path}?{urlencode(named, errors='replace')}" if named else path


@contextmanager
def parts_of_commands(lines: list[str] | None = None) -> Iterator[list[str]]:
    """Run parts of the commands: what they would print on standard error is collected, and what would end the command
    raises RefusedError with it."""
    said: list[str] = [] if lines is None else lines

    def take(line: str) -> None:
        if len(said) < _LINES_MAX:
            said.append(line)

    try:
        with lines_to(take):
            yield said
    except SystemExit as error:
        raise RefusedError(said.pop().removeprefix("Error: ") if said else "It was refused.") from error
    except click.ClickException as error:
        raise RefusedError(error.format_message()) from error


@dataclass(frozen=True, slots=True)
class Slice:
    """One page of a list: its number from 0, and how many items there are."""

    number: int
    size: int
    total: int

    @property
    def first(self) -> int:
        """The index of its first item."""
        return self.number * self.size

    @property
    def last(self) -> int:
        """The index after its last item."""
        return min(self.first + self.size, self.total)

    @property
    def has_next(self) -> bool:
        """Whether another page follows."""
        return self.last < self.total


def sliced(visit: Visit, items: Sequence[Any], size: int) -> tuple[Sequence[Any], Slice]:
    """Return the items of the page that `page` names."""
    number = min(visit.number("page"), max(len(items) - 1, 0) // size)
    part = Slice(number, size, len(items))
    return items[part.first : part.last], part
