"""Kafka's APIs: their requests and responses, as values and as bytes, in each version of the table.

    fetch = api("Fetch")
    request = fetch.decode_request(12, frame, header.body_at)
    topic = fetch.response.FetchableTopicResponse(topic="orders", partitions=[])
    parts = fetch.encode_response(12, fetch.response(session_id=0, responses=[topic]))

A message is an object with Kafka's field names in snake case (KL-31). Readers, writers and classes are compiled when
they are first used: all of them at once would take a good part of a second.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from kafka_listener.messages.fields import Entry, Message, entries
from kafka_listener.messages.readers import Reader, reader
from kafka_listener.messages.structs import classes_of
from kafka_listener.messages.tables import access, cluster, groups, records
from kafka_listener.messages.wire import ELEMENTS_MAX
from kafka_listener.messages.writers import Writer, writer


class Api:
    """One API of Kafka: its key, its name, and the versions that can be read and written.

    Decoders raise MalformedMessageError, and nothing else, for any bytes. Encoders return parts whose concatenation is
    the message. All raise ValueError for a version that is not in `versions`.
    """

    def __init__(self, entry: Entry) -> None:
        self.key: Final = entry.key
        self.name: Final = entry.name
        self.versions: Final = entry.versions
        self._entry = entry
        self._request = _Direction(entry, "request")
        self._response = _Direction(entry, "response")

    def __repr__(self) -> str:
        return f"Api({self.name}, {self.key}, versions {self.versions.start} to {self.versions.stop - 1})"

    def message(self, direction: str) -> Message:
        """Return the fields of the `request` or the `response`, in all versions."""
        return (self._request if direction == "request" else self._response).message

    def is_flexible(self, version: int) -> bool:
        """Whether a version has lengths of variable size and tagged fields."""
        return self._entry.flexible_from is not None and version >= self._entry.flexible_from

    @property
    def request(self) -> Any:
        """The class of requests; those of nested structs are its attributes."""
        return self._request.classes[f"{self.name}Request"]

    @property
    def response(self) -> Any:
        """The class of responses; those of nested structs are its attributes."""
        return self._response.classes[f"{self.name}Response"]

    def decode_request(self, version: int, data: bytes, at: int = 0, elements_max: int = ELEMENTS_MAX) -> Any:
        """Read the request that begins `at`. Bytes after it are passed over. Raises MalformedMessageError (KL-33): for
        more than `elements_max` elements, TooManyElementsError."""
        return self._request.reader(version)(data, at, elements_max)

    def decode_response(self, version: int, data: bytes, at: int = 0) -> Any:
        """Read the response that begins `at` and ends with `data`. Raises MalformedMessageError (KL-33)."""
        return self._response.reader(version)(data, at, ELEMENTS_MAX)

    def encode_request(self, version: int, value: Any) -> list[bytes]:
        """Write a request. Raises UnwritableMessageError for a value that a field cannot hold (KL-32)."""
        return _whole(self._request.writer(version), value)

    def encode_response(self, version: int, value: Any) -> list[bytes]:
        """Write a response. Raises UnwritableMessageError for a value that a field cannot hold (KL-32)."""
        return _whole(self._response.writer(version), value)

    def response_steps(self, version: int, value: Any, parts: list[bytes]) -> Iterator[None]:
        """Write a response into `parts` in steps, each of about one element of an array; it is whole when they end.
        Raises as `encode_response` does, in any step."""
        return self._response.writer(version)(value, parts)


class _Direction:
    """The requests or the responses of an API: what has been compiled for them."""

    def __init__(self, entry: Entry, direction: str) -> None:
        self._entry = entry
        self._direction = direction
        self._readers: dict[int, Reader] = {}
        self._writers: dict[int, Writer] = {}

    @functools.cached_property
    def message(self) -> Message:
        return self._entry.message(self._direction)

    @functools.cached_property
    def classes(self) -> Mapping[str, type[Any]]:
        return classes_of(self.message)

    def reader(self, version: int) -> Reader:
        found = self._readers.get(version)
        if found is None:
            found = self._readers[version] = reader(self.message, self.classes, version, self._is_flexible(version))
        return found

    def writer(self, version: int) -> Writer:
        found = self._writers.get(version)
        if found is None:
            found = self._writers[version] = writer(self.message, version, self._is_flexible(version))
        return found

    def _is_flexible(self, version: int) -> bool:
        versions = self._entry.versions
        if version not in versions:
            raise ValueError(
                f"{self._entry.name} has no version {version} here; expected {versions.start} to {versions.stop - 1}"
            )
        return self._entry.flexible_from is not None and version >= self._entry.flexible_from


def _whole(write: Writer, value: Any) -> list[bytes]:
    parts: list[bytes] = []
    for _ in write(value, parts):
        pass
    return parts


def _apis() -> Mapping[int, Api]:
    tables = (access.TABLE, cluster.TABLE, groups.TABLE, records.TABLE)
    made = [Api(entry) for entry in itertools.chain.from_iterable(map(entries, tables))]
    return MappingProxyType({api.key: api for api in sorted(made, key=lambda api: api.key)})


#: All APIs of the table, by key.
APIS: Final = _apis()
_BY_NAME: Final = {api.name: api for api in APIS.values()}


def api(name: str) -> Api:
    """Return an API by its name. Raises KeyError."""
    return _BY_NAME[name]
