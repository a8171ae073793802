"""The table of fields: its format, and how it is read (KL-30).

An entry of the table is one API:

    Name key versions first-last flexible first+
      request
        field type, field type …
      response
        …

A field is `name type`, followed by what differs from the usual:

- `3+`, `3-12` or `3`: the versions that have the field; without it, all versions of the struct have it.
- A type is a primitive (`int32`, `string` …), a struct's name, or one of these in brackets: an array of it. With `?`
  the value may be null; `?4+` says from which version on.
- `tag 0`: the field is one of the tagged fields, under this number. It is only written when it has not its default.
- `= value`: the default; without it 0, false, an empty string or array, a struct of defaults.

Several fields of one line are separated by commas. After `field type:` the fields of a struct follow, in the same line
or in indented ones, two spaces for each level; where its name is used again in the same message, it is the same struct.
The order of fields is the order of their bytes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

#: Primitive types of fixed size: the format of `struct`, and the size in bytes.
FIXED: Final[Mapping[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
#: Primitive types with a length before them. Records are bytes that are never copied.
SIZED: Final = frozenset({"string", "bytes", "records"})
#: The null of uuids.
ZERO_UUID: Final = bytes(16)
_LAST: Final = 0x7FFF  # of versions, where a range is open
_INDENT: Final = "  "
_HEADING: Final = re.compile(r"(\w+) (\d+) versions (\d+)(?:-(\d+))? flexible (?:(\d+)\+|never)")
_FIELD: Final = re.compile(
    r"(?P<name>[a-z]\w*) (?P<open>\[?)(?P<type>\w+)(?P<close>\]?)(?:(?P<null>\?)(?P<null_from>\d+\+)?)?"
    r"(?: (?P<versions>\d+(?:\+|-\d+)?))?(?: tag (?P<tag>\d+))?(?: = (?P<default>\S+))?"
)

_ZEROS: Final[Mapping[str, "Default"]] = {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": b"",
}

Default = int | bool | str | bytes | float | None


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


ALL: Final = Versions(0, _LAST)
NONE: Final = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, in all versions."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    #: Of a primitive, or None; arrays are empty and structs have their own defaults, unless `default_is_null`.
    default: Default
    default_is_null: bool

    @property
    def is_struct(self) -> bool:
        """Whether the type, or that of the array's elements, is a struct."""
        return self.type not in FIXED and self.type not in SIZED


@dataclass(frozen=True, slots=True)
class Shape:
    """A struct: its name and its fields, in the order of their bytes."""

    name: str
    fields: tuple[Field, ...]

    def present(self, version: int) -> list[Field]:
        """Return the untagged fields of a version."""
        return [field for field in self.fields if version in field.versions and field.tag is None]

    def tagged(self, version: int) -> list[Field]:
        """Return the tagged fields of a version, in the order of their numbers."""
        found = [field for field in self.fields if version in field.versions and field.tag is not None]
        return sorted(found, key=lambda field: field.tag or 0)


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response: its own struct, named after it, and all that occur in it, by name."""

    shape: Shape
    structs: Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the table: the heading, and the unread lines of its two messages."""

    name: str
    key: int
    versions: range
    flexible_from: int | None
    request: tuple[str, ...]
    response: tuple[str, ...]

    def message(self, direction: str) -> Message:
        """Read the fields of the `request` or the `response`. Raises ValueError where the table is wrong."""
        lines = self.request if direction == "request" else self.response
        return _MessageReader(f"{self.name}{direction.capitalize()}", lines).message()


def entries(table: str) -> Iterator[Entry]:
    """Read the headings of a table. Raises ValueError for lines that are not in its format."""
    heading: re.Match[str] | None = None
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in [*table.splitlines(), ""]:
        if not line.strip():
            if heading:
                yield _entry(heading, parts)
            heading, parts = None, {}
        elif heading is None:
            heading = _HEADING.fullmatch(line)
            if heading is None:
                raise ValueError(f"the table of messages has {line!r} where the heading of an API is expected")
        elif line in {"  request", "  response"}:
            lines = parts.setdefault(line.strip(), [])
        elif parts and line.startswith(_INDENT * 2):
            lines.append(line.removeprefix(_INDENT * 2))
        else:
            raise ValueError(f"the table of messages has {line!r} in {heading[1]}, outside of a request and a response")


def _entry(heading: re.Match[str], parts: Mapping[str, list[str]]) -> Entry:
    name, key, first, last, flexible = heading.groups()
    if set(parts) != {"request", "response"}:
        raise ValueError(f"the table of messages has {sorted(parts)} for {name}; expected a request and a response")
    return Entry(
        name=name,
        key=int(key),
        versions=range(int(first), int(last or first) + 1),
        flexible_from=None if flexible is None else int(flexible),
        request=tuple(parts["request"]),
        response=tuple(parts["response"]),
    )


class _MessageReader:
    """Reads the lines of one message into shapes."""

    def __init__(self, name: str, lines: tuple[str, ...]) -> None:
        self._name = name
        self._lines = lines
        self._at = 0
        self._structs: dict[str, Shape] = {}

    def message(self) -> Message:
        shape = self._block(self._name, 0)
        if self._at < len(self._lines):
            raise self._error(f"{self._lines[self._at]!r} is indented without a struct before it")
        self._structs[self._name] = shape
        return Message(shape, self._structs)

    def _block(self, name: str, depth: int) -> Shape:
        fields: list[Field] = []
        prefix = _INDENT * depth
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.startswith(prefix):
                break
            text = line.removeprefix(prefix)
            if text.startswith(" "):
                break
            self._at += 1
            fields += self._fields(text, depth)
        return self._shape(name, fields)

    def _fields(self, text: str, depth: int) -> list[Field]:
        """Read one line: fields, or one whose struct follows in it or in lines after it."""
        head, colon, rest = text.partition(":")
        if not colon:
            return [self._field(one) for one in text.split(", ")]
        struct = self._type_of(head)
        if struct in self._structs:
            raise self._error(f"struct {struct} is defined twice")
        if rest:
            self._structs[struct] = self._shape(struct, [self._field(one) for one in rest.strip().split(", ")])
        else:
            self._structs[struct] = self._block(struct, depth + 1)
        return [self._field(head)]

    def _shape(self, name: str, fields: list[Field]) -> Shape:
        if not fields or len({field.name for field in fields}) != len(fields):
            raise self._error(f"struct {name} has no fields, or two of one name")
        return Shape(name, tuple(fields))

    def _type_of(self, text: str) -> str:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise self._error(f"{text!r} is not a field")
        return found["type"]

    def _field(self, text: str) -> Field:
        found = _FIELD.fullmatch(text)
        if found is None or bool(found["open"]) != bool(found["close"]):
            raise self._error(f"{text!r} is not a field")
        type_, is_array = found["type"], bool(found["open"])
        if type_ not in FIXED and type_ not in SIZED and type_ not in self._structs:
            raise self._error(f"{text!r} has an unknown type")
        default = found["default"]
        return Field(
            name=found["name"],
            type=type_,
            is_array=is_array,
            versions=_versions(found["versions"]) if found["versions"] else ALL,
            nullable=(_versions(found["null_from"]) if found["null_from"] else ALL) if found["null"] else NONE,
            tag=None if found["tag"] is None else int(found["tag"]),
            default=None if is_array else _default(type_, default),
            default_is_null=default == "null" or (type_ == "records" and bool(found["null"])),
        )

    def _error(self, what: str) -> ValueError:
        return ValueError(f"the table of messages is wrong in {self._name}: {what}")


def _versions(text: str) -> Versions:
    first, dash, last = text.removesuffix("+").partition("-")
    if dash:
        return Versions(int(first), int(last))
    return Versions(int(first), _LAST if text.endswith("+") else int(first))


def _default(type_: str, text: str | None) -> Default:
    if text == "null":
        return None
    if text is None:
        return _ZEROS.get(type_, 0 if type_ in FIXED else None)
    return text == "true" if type_ == "bool" else int(text)
