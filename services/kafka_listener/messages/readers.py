"""Compiles a message of the table to the Python function that reads one version of it (KL-30, KL-33).

The function is straight-line: structs are read where they occur, without a call for each. Neighbouring fields of fixed
size are one call of `struct`, together with the first byte of the length after them. Arrays of structs of fixed size
are read at once.
"""

import itertools
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka_listener.messages import wire
from kafka_listener.messages.errors import MalformedMessageError
from kafka_listener.messages.fields import FIXED, ZERO_UUID, Field, Message, Shape
from kafka_listener.messages.fields import NONE as _NEVER
from kafka_listener.messages.structs import default_source

#: Reads the message that begins at a position of the frame and ends with it, of so many elements at most.
Reader = Callable[[bytes, int, int], Any]
_INDENT: Final = "    "
_REQUEST: Final = "Request"
#: So many numbers of an array count as one element.
_NUMBERS: Final = 16
#: What reading past the end, or bytes that are not UTF-8, raise in a reader.
_BAD_BYTES: Final = (IndexError, struct.error, UnicodeDecodeError)


def reader(message: Message, classes: Mapping[str, type[Any]], version: int, is_flexible: bool) -> Reader:
    """Compile the reader of a version. It raises MalformedMessageError, and nothing else, for any bytes: for more
    elements than it is to read, TooManyElementsError."""
    source = _ReaderSource(message, classes, version, is_flexible)
    name = f"{message.shape.name} {version}"
    exec(compile(source.text(), f"<reader of {name}>", "exec"), source.namespace)
    read: Reader = source.namespace["read"]

    def checked(data: bytes, at: int, elements_max: int) -> Any:
        try:
            return read(data, at, elements_max)
        except MalformedMessageError as error:
            raise type(error)(f"{name}: {error}") from None
        except _BAD_BYTES as error:
            raise MalformedMessageError(f"{name}: {error}") from None

    return checked


class _ReaderSource:
    """The source of one reader while it is written: its lines, and fixed fields that wait for one call of `struct`."""

    def __init__(self, message: Message, classes: Mapping[str, type[Any]], version: int, is_flexible: bool) -> None:
        self._message = message
        self._version = version
        self._is_flexible = is_flexible
        self._lines: list[str] = []
        self._depth = 1
        self._run: list[tuple[str, str]] = []  # format, variable
        self._numbers = itertools.count(1)
        self._layouts: dict[str, str] = {}
        self.namespace: dict[str, Any] = {
            **classes,
            "ZERO_UUID": ZERO_UUID,
            "unpack_from": struct.unpack_from,
            "more_of_varint": wire.more_of_varint,
            "skip_tags": wire.skip_tags,
            "refuse_null": wire.refuse_null,
            "refuse_count": wire.refuse_count,
            "refuse_elements": wire.refuse_elements,
            "refuse_tags": wire.refuse_tags,
            "refuse_length": wire.refuse_length,
            "refuse_tag": wire.refuse_tag,
            "refuse_end": wire.refuse_end,
        }

    def text(self) -> str:
        self._lines += ["def read(d, p, most):", "    z = len(d)", "    r = most"]
        fields = [field for shape in self._message.structs.values() for field in shape.fields]
        if any(field.type == "records" for field in fields):
            self._add("m = memoryview(d)")
        if any(field.type == "int8" and field.is_array for field in fields):
            self._add("s = memoryview(d).cast('b')")
        value = self._struct(self._message.shape, "")
        # librdkafka leaves bytes after an empty list of topics in Metadata, and a broker passes over them.
        wrong = ">" if self._message.shape.name.endswith(_REQUEST) else "!="
        self._add(f"{value[0]} = {value[1]}", f"if p {wrong} z:", "    refuse_end(p, z)", f"return {value[0]}")
        return "\n".join(self._lines)

    # Lines.

    def _add(self, *lines: str) -> None:
        self._lines += [_INDENT * self._depth + line for line in lines]

    def _open(self, line: str) -> None:
        self._add(line)
        self._depth += 1

    def _close(self) -> None:
        self._depth -= 1

    def _name(self, stem: str) -> str:
        """A variable of its own: the same struct may be read twice, and inside of another one."""
        return f"{stem}_{next(self._numbers)}"

    def _flush(self) -> None:
        """Read the fixed fields that wait, in one call."""
        if not self._run:
            return
        layout = "".join(format_ for format_, _ in self._run)
        names = ", ".join(name for _, name in self._run)
        size = struct.calcsize(f">{layout}")
        if layout == "B":
            self._add(f"{names} = d[p]", "p += 1")
        else:
            self._add(f"{names}, = {self._layout(layout)}.unpack_from(d, p)".replace(",,", ","), f"p += {size}")
        self._run.clear()

    def _layout(self, layout: str) -> str:
        """The name of a compiled `struct`."""
        if layout not in self._layouts:
            self._layouts[layout] = f"S{len(self._layouts)}"
            self.namespace[self._layouts[layout]] = struct.Struct(f">{layout}")
        return self._layouts[layout]

    def _varint(self, name: str) -> None:
        """Read an unsigned varint into a variable; its first byte is part of the fixed fields before it."""
        self._run.append(("B", name))
        self._flush()
        self._add(f"if {name} > 127:", f"    {name}, p = more_of_varint(d, p, {name})")

    # Structs.

    def _struct(self, shape: Shape, path: str) -> tuple[str, str]:
        """Read a struct's fields; return a name for it, and the expression that makes it."""
        values = {field.name: default_source(field) for field in shape.fields}
        for field in shape.present(self._version):
            values[field.name] = self._name(field.name)
            self._field(field, values[field.name], f"{path}{field.name}")
        if self._is_flexible:
            self._tags(shape, values, path)
        self._flush()
        return self._name("value"), f"{shape.name}({', '.join(values.values())})"

    def _tags(self, shape: Shape, values: dict[str, str], path: str) -> None:
        tagged = shape.tagged(self._version)
        count = self._name("tags")
        self._run.append(("B", count))
        self._flush()
        for field in tagged:
            values[field.name] = self._name(field.name)
            self._add(f"{values[field.name]} = {default_source(field)}")
        self._open(f"if {count}:")
        self._charge(count, path)
        if not tagged:
            self._add(f"p = skip_tags(d, p, {count})")
        else:
            self._known_tags(tagged, values, count, path)
        self._close()

    def _known_tags(self, tagged: list[Field], values: Mapping[str, str], count: str, path: str) -> None:
        tag, end, start = self._name("tag"), self._name("end"), self._name("start")
        self._add(f"if {count} > {wire.TAGS_MAX}:", "    refuse_tags()")
        self._open(f"for _ in range({count}):")
        self._varint(tag)
        self._varint(end)
        self._add(f"{start} = p", f"{end} += p")
        for index, field in enumerate(tagged):
            self._open(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self._field(field, values[field.name], f"{path}{field.name}")
            self._flush()
            what = f"{path}{field.name}"
            self._add(f"if p != {end}:", f"    refuse_tag({what!r}, {end} - {start}, p - {start})")
            self._close()
        self._add("else:", f"    p = {end}")
        self._close()

    def _charge(self, elements: str, path: str) -> None:
        """Count elements of the message, and refuse more than it may have (KL-36)."""
        self._add(f"r -= {elements}", "if r < 0:", f"    refuse_elements({path.rstrip('.')!r}, most)")

    # Fields.

    def _field(self, field: Field, name: str, path: str) -> None:
        if field.is_array:
            self._array(field, name, path)
        elif field.type in FIXED:
            self._run.append((FIXED[field.type][0], name))
        elif field.type == "string":
            self._string(name, path, self._may_be_null(field))
        elif field.is_struct:
            self._nested(field, name, path)
        else:
            self._bytes(field, name, path)

    def _may_be_null(self, field: Field) -> bool:
        return self._version in field.nullable

    def _nested(self, field: Field, name: str, path: str) -> None:
        shape = self._message.structs[field.type]
        if not self._may_be_null(field):
            _, made = self._struct(shape, f"{path}.")
            self._add(f"{name} = {made}")
            return
        there = self._name("there")
        self._run.append(("b", there))
        self._flush()
        self._add(f"{name} = None")
        self._open(f"if {there} >= 0:")
        _, made = self._struct(shape, f"{path}.")
        self._add(f"{name} = {made}")
        self._close()

    def _string(self, name: str, path: str, may_be_null: bool) -> None:
        size = self._length("h", path)
        if self._is_flexible:
            self._add(f"if {size} > {wire.STRING_BYTES_MAX}:", f"    refuse_length({path!r}, {size})")
        self._sized(size, name, path, may_be_null)
        self._add(f"    {size} += p", f"    {name} = str(d[p:{size}], 'utf-8')", f"    p = {size}")

    def _bytes(self, field: Field, name: str, path: str) -> None:
        size = self._length("i", path)
        self._sized(size, name, path, self._may_be_null(field))
        held = "m" if field.type == "records" else "d"
        self._add(f"    {size} += p", f"    {name} = {held}[p:{size}]", f"    p = {size}")

    def _length(self, layout: str, path: str) -> str:
        """Read a length, −1 for null, into a variable."""
        size = self._name("size")
        if self._is_flexible:
            self._varint(size)
            self._add(f"{size} -= 1")
        else:
            self._run.append((layout, size))
            self._flush()
        return size

    def _sized(self, size: str, name: str, path: str, may_be_null: bool) -> None:
        """Branch on a length: what follows is indented and for those that are not null."""
        if may_be_null:
            self._add(f"if {size} == -1:", f"    {name} = None")
            if not self._is_flexible:
                self._add(f"elif {size} < 0:", f"    refuse_null({path!r}, {size})")
        else:
            self._add(f"if {size} < 0:", f"    refuse_null({path!r}, {size})")
        self._add("else:")

    def _array(self, field: Field, name: str, path: str) -> None:
        size = self._length("i", path)
        self._sized(size, name, path, self._may_be_null(field))
        self._depth += 1
        least = self._least(field.type)
        room = f"{size} * {least}" if least > 1 else size
        self._add(f"if {room} > z - p:", f"    refuse_count({path!r}, {size}, z - p)")
        if field.type not in FIXED:
            self._charge(size, path)
        else:
            self._open(f"if {size} > {_NUMBERS - 1}:")
            self._charge(f"{size} // {_NUMBERS}", path)
            self._close()
        if field.type == "int8":
            self._add(f"{size} += p", f"{name} = s[p:{size}].tolist()", f"p = {size}")
        elif field.type in FIXED and field.type != "uuid":
            layout, width = FIXED[field.type]
            self._add(f"{name} = list(unpack_from(f'>{{{size}}}{layout}', d, p))", f"p += {size} * {width}")
        elif field.is_struct and self._is_fixed(self._message.structs[field.type]):
            self._array_of_fixed(self._message.structs[field.type], name, size, path)
        else:
            self._elements(field, name, size, path)
        self._close()

    def _elements(self, field: Field, name: str, size: str, path: str) -> None:
        """Read elements one by one."""
        append = self._name("append")
        self._add(f"{name} = []", f"{append} = {name}.append")
        self._open(f"for _ in range({size}):")
        if field.is_struct:
            _, made = self._struct(self._message.structs[field.type], f"{path}.")
            self._add(f"{append}({made})")
        else:
            element = self._name("element")
            single = Field(field.name, field.type, False, field.versions, _NEVER, None, field.default, False)
            self._field(single, element, path)
            self._flush()
            self._add(f"{append}({element})")
        self._close()

    def _array_of_fixed(self, shape: Shape, name: str, size: str, path: str) -> None:
        """Read structs of fixed size at once, or one by one where some have tagged fields, which no version knows."""
        values = {field.name: default_source(field) for field in shape.fields}
        present = shape.present(self._version)
        values |= {field.name: f"{field.name}_" for field in present}
        layout = "".join(FIXED[field.type][0] for field in present)
        names = "".join(f"{values[field.name]}, " for field in present)
        width = struct.calcsize(f">{layout}")
        made = f"[{shape.name}({', '.join(values.values())}) for {names}in {{}}.iter_unpack(d[p:{{}}])]"
        end = self._name("end")
        if not self._is_flexible:
            self._add(
                f"{end} = p + {size} * {width}", f"{name} = {made.format(self._layout(layout), end)}", f"p = {end}"
            )
            return
        self._add(f"{end} = p + {size} * {width + 1}")
        self._open(f"if d[p + {width}:{end}:{width + 1}].count(0) == {size}:")
        self._add(f"{name} = {made.format(self._layout(layout + 'x'), end)}", f"p = {end}")
        self._close()
        self._open("else:")
        self._elements(Field("", shape.name, True, _NEVER, _NEVER, None, None, False), name, size, path)
        self._close()

    # Sizes.

    def _is_fixed(self, shape: Shape) -> bool:
        """Whether the struct has one size in this version, but for unknown tagged fields."""
        present = shape.present(self._version)
        return not shape.tagged(self._version) and all(one.type in FIXED and not one.is_array for one in present)

    def _least(self, type_: str) -> int:
        """The fewest bytes of an element."""
        if type_ in FIXED:
            return FIXED[type_][1]
        shape = self._message.structs.get(type_)
        if shape is None:
            return 1 if self._is_flexible else {"string": 2}.get(type_, 4)
        return sum(map(self._least_of, shape.present(self._version))) + self._is_flexible

    def _least_of(self, field: Field) -> int:
        if field.is_array:
            return 1 if self._is_flexible else 4
        if field.is_struct and self._may_be_null(field):
            return 1
        return self._least(field.type)
