"""The headers of requests and responses: before the message, after the frame's size (KL-34)."""

import struct
from typing import Final, NamedTuple

from kafka_listener.messages.apis import APIS, Api
from kafka_listener.messages.errors import MalformedMessageError
from kafka_listener.messages.wire import skip_tags

_START: Final = struct.Struct(">hhi")
_LENGTH: Final = struct.Struct(">h")
_PLAIN: Final = struct.Struct(">i")
_TAGGED: Final = struct.Struct(">ix")  # and no tagged field
#: Its responses have the old header in all versions: a client reads them before it knows the versions of the node.
_API_VERSIONS: Final = 18


class RequestHeader(NamedTuple):
    """What a request's header says. `body_at` is where the message begins.

    It is −1 where the table does not know the key or the version: then the rest of the header was not read.
    """

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_header(frame: bytes) -> RequestHeader:
    """Read the header of a request; `frame` has no size before it. Raises MalformedMessageError."""
    try:
        key, version, correlation_id = _START.unpack_from(frame)
        api = APIS.get(key)
        if api is None or version not in api.versions:
            return RequestHeader(key, version, correlation_id, None, -1)
        client_id, at = _client_id(frame, _START.size)
        if api.is_flexible(version):
            at = skip_tags(frame, at + 1, frame[at])
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"the header of a request, {len(frame)} bytes with its message: {error}") from None
    if at > len(frame):
        raise MalformedMessageError(f"the header of a request is cut: {at - len(frame)} bytes are missing at least")
    return RequestHeader(key, version, correlation_id, client_id, at)


def _client_id(frame: bytes, at: int) -> tuple[str | None, int]:
    """Read the client id, which has the old format in all headers: it, and its end."""
    (size,) = _LENGTH.unpack_from(frame, at)
    at += _LENGTH.size
    if size >= 0:
        return str(frame[at : at + size], "utf-8"), at + size
    if size != -1:
        raise MalformedMessageError(f"the header of a request has a client id of length {size}")
    return None, at


def response_head(api: Api, version: int, correlation_id: int) -> bytes:
    """Return the header of a response."""
    layout = _TAGGED if api.is_flexible(version) and api.key != _API_VERSIONS else _PLAIN
    return layout.pack(correlation_id)


def request_head(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the header of a request, as a client sends it."""
    name = b"" if client_id is None else client_id.encode()
    head = _START.pack(api.key, version, correlation_id) + _LENGTH.pack(-1 if client_id is None else len(name)) + name
    return head + b"\0" if api.is_flexible(version) else head


def read_response_head(api: Api, version: int, frame: bytes) -> tuple[int, int]:
    """Read the header of a response, as a client does: its correlation id, and where the message begins.

    Raises MalformedMessageError.
    """
    try:
        (correlation_id,) = _PLAIN.unpack_from(frame)
        at = _PLAIN.size
        if len(response_head(api, version, 0)) > at:
            at = skip_tags(frame, at + 1, frame[at])
    except (IndexError, struct.error) as error:
        raise MalformedMessageError(f"the header of a response, {len(frame)} bytes with its message: {error}") from None
    return correlation_id, at
