"""Reads the headers of a dead letter, and makes those of the fresh record that it is redriven as (CT-121, CT-125).

Pure: headers in, values out. Headers are untrusted and may be forged; nothing in them can raise an error here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from kip932.failures import REASON_BYTES_MAX

Headers = Sequence[tuple[str, bytes | None]]

_ERRORS: Final = "__dlq.errors."
#: The headers of a dead letter, in order; those of `_OPTIONAL` are present when their values are known (PL-909).
_REQUIRED: Final = tuple(_ERRORS + name for name in ("topic", "partition", "offset", "group"))
_DELIVERY_COUNT: Final = _ERRORS + "delivery.count"
_MESSAGE: Final = _ERRORS + "message"
_TOPIC_ID: Final = _ERRORS + "topic.id"
_HOPS: Final = _ERRORS + "hops"
_OPTIONAL: Final = (_DELIVERY_COUNT, _MESSAGE, _TOPIC_ID, _HOPS)
#: Directly before those headers, if a member gave a reason (PL-943): so tools from before it recognise the letter.
_REASON: Final = _ERRORS + "reason"
REDRIVE: Final = "__dlq.redrive."
_REDRIVE_COUNT: Final = REDRIVE + "count"
_PARTITION_MAX: Final = 2**31 - 1
_NUMBER_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19
#: A name in a header that is longer than this, in bytes, is not accepted: no topic or group has one.
_NAME_MAX: Final = 1_000
#: The maximum number of bytes of a header that are kept for display.
_SHOWN_MAX: Final = 1_000


class Origin(NamedTuple):
    """The position of the original record, which the dead letter is about."""

    topic: str
    partition: int
    offset: int


class Letter(NamedTuple):
    """The content of a dead letter's headers.

    `origin` and `group` are None when a header that they need is garbled; `delivery_count` and `cause` are None when
    their header is missing, `delivery_count` also when it is garbled. `origin_text` and `group_text` are the headers'
    text for display, even if garbled: bytes that are not UTF-8 become lone surrogates (`surrogateescape`). `others`:
    the headers that the origin had. `redrives`: how many times the record had been redriven before it failed again;
    None when the letter has no copy of the record, and so none of its headers. `topic_id`: the id of the origin's topic
    as text, "" when the letter does not name it. It distinguishes a topic from one that was re-created with the same
    name and offsets. `hops`: the length of the chain of dead letters that ends with this one. `reason`: why a member
    gave the record up, decoded like the texts; None when none was given.
    """

    origin: Origin | None
    group: str | None
    delivery_count: int | None
    cause: str | None
    origin_text: str
    group_text: str
    is_garbled: bool
    is_headers_only: bool
    redrives: int | None
    others: Headers
    topic_id: str = ""
    hops: int = 1
    reason: str | None = None


class Place(NamedTuple):
    """The position of a dead letter: its DLQ topic's name and id as text, its partition and its offset."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class Redriven(NamedTuple):
    """The dead letter that a fresh record was made from, according to the record's headers. `topic_id`: the id of the
    DLQ topic."""

    topic_id: str
    group: str
    origin_offset: int
    origin_topic_id: str = ""


def letter_of(headers: Headers, key: bytes | None, value: bytes | None) -> Letter | None:
    """Return the dead letter in a record; None if the record's last headers are not those of a dead letter."""
    begin = _begin(headers)
    if begin is None:
        return None
    has_reason = begin > 0 and headers[begin - 1][0] == _REASON
    reason = headers[begin - 1][1] if has_reason else None
    others, own = headers[: begin - has_reason], dict(headers[begin:])
    topic, partition, offset, group = (own[name] for name in _REQUIRED)
    origin_text = ":".join(map(_shown, (topic, partition, offset)))
    where = _origin(topic, partition, offset)
    who = _text(group)
    count = _number(own.get(_DELIVERY_COUNT), _NUMBER_MAX)
    cause = own.get(_MESSAGE)
    topic_id = _text(own.get(_TOPIC_ID))
    hops = _number(own.get(_HOPS), _NUMBER_MAX)
    numbers = ((_DELIVERY_COUNT, count), (_MESSAGE, _text(cause)), (_TOPIC_ID, topic_id), (_HOPS, hops))
    wrong = any(name in own and value is None for name, value in numbers)
    keys = {None, origin_text, f"{_shown(group)}:{origin_text}"}
    is_headers_only = value is None and not others and (None if key is None else _shown(key)) in keys
    return Letter(
        where,
        who,
        count,
        _shown(cause) if _MESSAGE in own else None,
        origin_text,
        _shown(group),
        is_garbled=where is None or who is None or wrong,
        is_headers_only=is_headers_only,
        redrives=None if is_headers_only else redrives_of(others),
        others=others,
        topic_id=topic_id or "",
        hops=1 if hops is None else hops,
        reason=None if reason is None else _shown(reason, REASON_BYTES_MAX),
    )


def _begin(headers: Headers) -> int | None:
    """Return the index at which the dead letter's headers begin; None when `headers` does not end with them."""
    at = len(headers)
    for name in reversed(_OPTIONAL):
        if at and headers[at - 1][0] == name:
            at -= 1
    begin = at - len(_REQUIRED)
    if begin < 0 or tuple(name for name, _ in headers[begin:at]) != _REQUIRED:
        return None
    return begin


def _origin(topic: bytes | None, partition: bytes | None, offset: bytes | None) -> Origin | None:
    name, number, at = _text(topic), _number(partition, _PARTITION_MAX), _number(offset, _NUMBER_MAX)
    return None if not name or number is None or at is None else Origin(name, number, at)


def redrives_of(headers: Headers) -> int:
    """Return how many times a record with these headers has been redriven; 0 when they do not say."""
    return next((_number(value, _NUMBER_MAX) or 0 for name, value in reversed(headers) if name == _REDRIVE_COUNT), 0)


def fresh_headers(origin_headers: Headers, letter: Letter, place: Place) -> list[tuple[str, bytes | None]]:
    """Return the headers of the fresh record (CT-125). `origin_headers`: the headers of the copy, or of the original
    record itself.

    Call it only for dead letters with `origin` and `group`.
    """
    assert letter.origin is not None
    assert letter.group is not None
    said = {
        "topic": place.topic,
        "topic.id": place.topic_id,
        "partition": place.partition,
        "offset": place.offset,
        "group": letter.group,
        "origin.offset": letter.origin.offset,
    }
    if letter.topic_id:
        said["origin.topic.id"] = letter.topic_id
    said["count"] = redrives_of(origin_headers) + 1
    return _own(origin_headers) + [(REDRIVE + name, str(value).encode()) for name, value in said.items()]


def _own(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return the headers that the record's producer set."""
    return [(name, value) for name, value in headers if not name.startswith((REDRIVE, _ERRORS))]


def content_of(key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> int:
    """Return a 64-bit hash, never 0, of what the producer put into a record; a copy and its fresh record have the same
    hash.

    Headers of dead letters and of redriven records are ignored.
    """
    found = blake2b(str(timestamp_ms).encode(), digest_size=8)
    parts = [key, value]
    for name, header in _own(headers):
        parts += [name.encode("utf-8", "surrogateescape"), header]
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part))
        found.update(part or b"")
    return int.from_bytes(found.digest(), "big") or 1


def letter_content(letter: Letter, key: bytes | None, value: bytes | None, timestamp_ms: int) -> int:
    """Return `content_of` for a record that is a dead letter: equal if the same dead letter was written twice.

    The result is always 1 for a letter without a copy that names its origin's topic id.
    """
    if letter.is_headers_only and letter.topic_id:
        return 1
    return content_of(key, value, timestamp_ms, letter.others)


def redriven_of(headers: Headers) -> Redriven | None:
    """Return what a record's headers say about the dead letter that it was redriven from; None when they do not name
    one."""
    if not any(name == _REDRIVE_COUNT for name, _ in headers):
        return None
    own = dict(headers)
    topic_id, group = _text(own.get(REDRIVE + "topic.id")), _text(own.get(REDRIVE + "group"))
    offset = _number(own.get(REDRIVE + "origin.offset"), _NUMBER_MAX)
    if topic_id is None or group is None or offset is None:
        return None
    return Redriven(topic_id, group, offset, _text(own.get(REDRIVE + "origin.topic.id")) or "")


def _text(value: bytes | None) -> str | None:
    if value is None or len(value) > _NAME_MAX:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _shown(value: bytes | None, most: int = _SHOWN_MAX) -> str:
    if value is None:
        return "null"
    return value[:most].decode("utf-8", "surrogateescape") + ("…" if len(value) > most else "")


def _number(value: bytes | None, most: int) -> int | None:
    text = _text(value)
    if text is None or len(text) > _DIGITS_MAX or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= most else None
