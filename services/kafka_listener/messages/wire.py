"""What readers and writers of messages share: lengths, tagged fields, and their errors.

Readers get the whole frame and a position in it. Reads past its end raise IndexError or struct.error; where a slice is
merely shorter, the reader finds in the end that its position is not the frame's end (KL-33).
"""

from typing import Final, NoReturn

from kafka_listener.messages.errors import MalformedMessageError, TooManyElementsError

#: The most bytes of a string, in all versions.
STRING_BYTES_MAX: Final = 0x7FFF
#: Encoded lengths below 128, which is nearly all.
ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))
#: The most elements of all arrays, and tagged fields, of a message together; sixteen numbers count as one. A frame of
#: 8 MiB could otherwise hold millions of structs, for a second and half a GiB (KL-36).
ELEMENTS_MAX: Final = 1 << 16
#: The most tagged fields of one struct: their count is one byte.
TAGS_MAX: Final = 127
_VARINT_BITS_MAX: Final = 31


def more_of_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose `first` byte, 128 or more, precedes `at`: its value, and its end.

    Raises MalformedMessageError for more than five bytes or 31 bits.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> _VARINT_BITS_MAX:
                break
            return value, at
    raise MalformedMessageError("a length of variable size has more than five bytes or 31 bits")


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_varint(value: int) -> bytes:
    """Encode the length of a compact string, plus one. Raises ValueError for strings that Kafka does not have."""
    if value > STRING_BYTES_MAX + 1:
        raise ValueError(f"a string has {value - 1} bytes in UTF-8; Kafka's have {STRING_BYTES_MAX} at most")
    return varint(value)


def skip_tags(data: bytes, at: int, count: int) -> int:
    """Skip `count` tagged fields; return their end. Raises MalformedMessageError for more than `TAGS_MAX`."""
    if count > TAGS_MAX:
        refuse_tags()
    for _ in range(count):
        first = data[at]
        at += 1
        if first > 0x7F:
            _, at = more_of_varint(data, at, first)
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = more_of_varint(data, at, size)
        at += size
    return at


def refuse_null(what: str, length: int) -> NoReturn:
    """Raise MalformedMessageError for the length of a null where none may be, or for another negative one."""
    if length == -1:
        raise MalformedMessageError(f"{what} is null, which it may not be")
    raise MalformedMessageError(f"{what} has length {length}")


def refuse_count(what: str, count: int, left: int) -> NoReturn:
    """Raise MalformedMessageError for more elements than the bytes that are left can hold."""
    raise MalformedMessageError(f"{what} has {count} elements announced, in the {left} bytes that are left")


def refuse_elements(what: str, elements_max: int) -> NoReturn:
    """Raise TooManyElementsError for a message of more elements than it may have."""
    raise TooManyElementsError(f"the message has more than {elements_max} elements, counted up to {what}")


def refuse_tags() -> NoReturn:
    """Raise MalformedMessageError for more tagged fields than Kafka will ever have in a struct."""
    raise MalformedMessageError(f"a struct has more than {TAGS_MAX} tagged fields")


def refuse_length(what: str, length: int) -> NoReturn:
    """Raise MalformedMessageError for a string that is longer than any of Kafka's."""
    raise MalformedMessageError(f"{what} has {length} bytes announced; a string has {STRING_BYTES_MAX} at most")


def refuse_tag(what: str, announced: int, read: int) -> NoReturn:
    """Raise MalformedMessageError for a tagged field that does not end where it was announced to end."""
    raise MalformedMessageError(f"tagged field {what} has {read} bytes where {announced} were announced")


def refuse_end(at: int, end: int) -> NoReturn:
    """Raise MalformedMessageError for a message that does not end where its frame does."""
    if at < end:
        raise MalformedMessageError(f"{end - at} bytes are left over after the message")
    raise MalformedMessageError(f"the message is cut: {at - end} bytes are missing at least")
