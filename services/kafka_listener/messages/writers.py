"""Compiles a message of the table to the Python function that writes one version of it (KL-30, KL-32).

The function is straight-line, as readers are: neighbouring fields of fixed size, the first byte of the length after
them and the zero byte for "no tagged fields" are one call of `struct`. Parts are collected in a list; records become
parts of their own, without a copy.

It is a generator that stops after each element of an array: a message of many elements can be written in slices.
"""

import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafka_listener.messages import wire
from kafka_listener.messages.errors import UnwritableMessageError
from kafka_listener.messages.fields import FIXED, ZERO_UUID, Field, Message, Shape
from kafka_listener.messages.fields import NONE as _NEVER
from kafka_listener.messages.structs import default_source

#: Writes a message as parts, of which the message is the concatenation, and adds them to a list.
Writer = Callable[[Any, list[bytes]], Iterator[None]]
_INDENT: Final = "    "
#: How many values are joined into one part: half a million at the end of a long message would take some 20 ms.
_JOINED: Final = 10_000


def writer(message: Message, version: int, is_flexible: bool) -> Writer:
    """Compile the writer of a version. It raises UnwritableMessageError for values that their fields cannot hold. The
    message is written when the iterator ends, which stops after each element of an array with more than numbers.

    Fields that the version does not have are left out.
    """
    source = _WriterSource(message, version, is_flexible)
    name = f"{message.shape.name} {version}"
    exec(compile(source.text(), f"<writer of {name}>", "exec"), source.namespace)
    write: Writer = source.namespace["write"]

    def checked(value: Any, parts: list[bytes]) -> Iterator[None]:
        try:
            yield from write(value, parts)
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            raise UnwritableMessageError(f"{name} cannot be written: {error}; the value is {value!r:.400}") from error

    return checked


class _WriterSource:
    """The source of one writer while it is written: its lines, and fixed fields that wait for one call of `struct`."""

    def __init__(self, message: Message, version: int, is_flexible: bool) -> None:
        self._message = message
        self._version = version
        self._is_flexible = is_flexible
        self._lines: list[str] = []
        self._depth = 1
        self._run: list[tuple[str, str]] = []  # format, expression; "" for padding
        self._numbers = itertools.count(1)
        self._packs: dict[str, str] = {}
        self.namespace: dict[str, Any] = {
            "EMPTY": wire.ONE_BYTE[0],
            "ONE_BYTE": wire.ONE_BYTE,
            "ZERO_UUID": ZERO_UUID,
            "pack": struct.pack,
            "string_varint": wire.string_varint,
            "varint": wire.varint,
        }

    def text(self) -> str:
        self._lines += ["def write(v, parts):", "    out = []", "    w = out.append"]
        self._struct(self._message.shape, "v")
        self._flush()
        self._add("if out:", "    parts.append(b''.join(out))", "yield")
        return "\n".join(self._lines)

    # Lines.

    def _add(self, *lines: str) -> None:
        self._lines += [_INDENT * self._depth + line for line in lines]

    def _open(self, line: str) -> None:
        self._add(line)
        self._depth += 1

    def _close(self) -> None:
        """End a block; what waits belongs to it."""
        self._flush()
        self._depth -= 1

    def _name(self, stem: str) -> str:
        """A variable of its own: the same struct may be written twice, and inside of another one."""
        return f"{stem}_{next(self._numbers)}"

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """The expression of some fixed fields as bytes."""
        layout = "".join(format_ for format_, _ in run)
        if layout == "x":
            return "EMPTY"
        if layout not in self._packs:
            self._packs[layout] = f"P{len(self._packs)}"
            self.namespace[self._packs[layout]] = struct.Struct(f">{layout}").pack
        return f"{self._packs[layout]}({', '.join(expression for _, expression in run if expression)})"

    def _flush(self) -> None:
        """Write the fixed fields that wait, in one call."""
        if self._run:
            self._add(f"w({self._packed(self._run)})")
            self._run.clear()

    def _varint(self, name: str, encoder: str = "varint") -> None:
        """Write an unsigned varint; below 128, it is one byte and part of the fixed fields before it."""
        if self._run:
            self._add(f"if {name} < 128:", f"    w({self._packed([*self._run, ('B', name)])})")
            self._add("else:", f"    w({self._packed(self._run)})", f"    w({encoder}({name}))")
            self._run.clear()
        else:
            self._add(f"w(ONE_BYTE[{name}] if {name} < 128 else {encoder}({name}))")

    # Structs.

    def _struct(self, shape: Shape, value: str) -> None:
        for field in shape.present(self._version):
            self._field(field, f"{value}.{field.name}")
        if self._is_flexible:
            self._tags(shape.tagged(self._version), value)

    def _tags(self, tagged: list[Field], value: str) -> None:
        """Write the tagged fields that have not their defaults."""
        if not tagged:
            self._run.append(("x", ""))
            return
        given = [self._name("given") for _ in tagged]
        for name, field in zip(given, tagged, strict=True):
            self._add(f"{name} = {self._is_given(field, f'{value}.{field.name}')}")
        count = self._name("count")
        self._add(f"{count} = {' + '.join(given)}")
        self._varint(count)
        for name, field in zip(given, tagged, strict=True):
            self._open(f"if {name}:")
            outer, body = self._name("outer"), self._name("body")
            self._add(f"{outer} = w", f"{body} = []", f"w = {body}.append")
            self._field(field, f"{value}.{field.name}")
            self._flush()
            self._add(f"w = {outer}", f"{body} = b''.join({body})")
            self._add(f"w(ONE_BYTE[{field.tag}])", f"w(varint(len({body})))", f"w({body})")
            self._close()

    # Fields.

    def _field(self, field: Field, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.type in FIXED:
            self._run.append((FIXED[field.type][0], self._uuid(value) if field.type == "uuid" else value))
        elif field.is_struct:
            self._nested(field, value)
        else:
            self._sized(field, value)

    def _uuid(self, value: str) -> str:
        """Check the size: `struct` would fill up or cut any bytes."""
        name = self._name("uuid")
        self._add(f"{name} = {value}", f"if len({name}) != 16:")
        self._add(f"    raise ValueError(f'a uuid has {{len({name})}} bytes; expected 16')")
        return name

    def _nested(self, field: Field, value: str) -> None:
        shape = self._message.structs[field.type]
        name = self._name("struct")
        self._add(f"{name} = {value}")
        if self._version not in field.nullable:
            self._struct(shape, name)
            return
        self._flush()
        self._add(f"if {name} is None:", "    w(b'\\xff')")
        self._open("else:")
        self._add("w(b'\\x01')")
        self._struct(shape, name)
        self._close()

    def _sized(self, field: Field, value: str) -> None:
        """Write a string, bytes or records, after their length."""
        content, size = self._name("content"), self._name("size")
        null = 0 if self._is_flexible else -1
        shift = " + 1" if self._is_flexible else ""
        self._add(f"{content} = {value}")
        if self._version in field.nullable:
            self._add(f"if {content} is None:", f"    {content} = b''", f"    {size} = {null}", "else:")
            self._depth += 1
        if field.type == "string":
            self._add(f"{content} = {content}.encode()")
        elif field.type == "records":
            self._add(
                f"if isinstance({content}, (list, tuple)):", f"    {size} = sum(map(len, {content})){shift}", "else:"
            )
            self._add(f"    {size} = len({content}){shift}", f"    {content} = [{content}]")
        if field.type != "records":
            self._add(f"{size} = len({content}){shift}")
        if self._version in field.nullable:
            self._depth -= 1
        if self._is_flexible:
            self._varint(size, "string_varint" if field.type == "string" else "varint")
        else:
            self._run.append(("h" if field.type == "string" else "i", size))
            self._flush()
        if field.type == "records":
            self._add(f"if {size} > {int(self._is_flexible)}:")
            self._add("    parts.append(b''.join(out))", "    out.clear()", f"    parts += {content}")
        else:
            self._add(f"w({content})")

    def _array(self, field: Field, value: str) -> None:
        name, size = self._name("items"), self._name("size")
        null, shift = (0, " + 1") if self._is_flexible else (-1, "")
        self._add(f"{name} = {value}")
        if self._version in field.nullable:
            self._add(f"if {name} is None:", f"    {name} = ()", f"    {size} = {null}", "else:")
            self._add(f"    {size} = len({name}){shift}")
        else:
            self._add(f"{size} = len({name}){shift}")
        if self._is_flexible:
            self._varint(size)
        else:
            self._run.append(("i", size))
            self._flush()
        if field.type in FIXED and field.type != "uuid":
            self._add(f"w(pack(f'>{{len({name})}}{FIXED[field.type][0]}', *{name}))")
        else:
            self._elements(field, name)

    def _elements(self, field: Field, items: str) -> None:
        element = self._name("element")
        shape = self._message.structs.get(field.type)
        if shape is not None and self._is_fixed(shape):
            run = [(FIXED[one.type][0], f"{element}.{one.name}") for one in shape.present(self._version)]
            run += [("x", "")] if self._is_flexible else []
            self._add(f"w(b''.join([{self._packed(run)} for {element} in {items}]))")
            return
        self._open(f"for {element} in {items}:")
        if shape is not None:
            self._struct(shape, element)
        else:
            self._field(Field(field.name, field.type, False, field.versions, _NEVER, None, None, False), element)
        self._flush()
        self._add(f"if len(out) > {_JOINED}:", "    parts.append(b''.join(out))", "    out.clear()", "yield")
        self._close()

    def _is_fixed(self, shape: Shape) -> bool:
        """Whether the struct has one size in this version, and no uuid, whose size has to be checked."""
        present = shape.present(self._version)
        simple = all(one.type in FIXED and one.type != "uuid" and not one.is_array for one in present)
        return simple and not shape.tagged(self._version)

    def _is_given(self, field: Field, value: str) -> str:
        """The condition under which a tagged field is written: it has not its default. Structs have primitives only."""
        if field.default_is_null:
            return f"{value} is not None"
        if field.is_array:
            return f"len({value}) > 0"
        if field.is_struct:
            present = self._message.structs[field.type].present(self._version)
            return f"({' or '.join(f'{value}.{one.name} != {default_source(one)}' for one in present)})"
        return f"({value} != {default_source(field)})"
