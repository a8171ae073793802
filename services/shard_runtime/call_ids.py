"""Says in log lines which call they are written for (CM-240): the id of its request, and its caller's client.id.

Only lines that the call's own task writes have them: tasks that a call starts may outlive it and work for others.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any, Final

#: The key of the call metadata with the id that a caller gives its request.
REQUEST_ID_KEY: Final = "x-request-id"
#: A longer id of a caller is cut to this many characters.
REQUEST_ID_MAX: Final = 64
CLIENT_ID_MAX: Final = 255


class CallIds:
    """The ids of one call. That of its request is made when it is first needed, unless its caller gave one."""

    __slots__ = ("_request_id", "_task", "client_id")

    def __init__(self, request_id: str, client_id: str) -> None:
        self._request_id = request_id[:REQUEST_ID_MAX]
        self._task = _present_task()
        self.client_id = client_id[:CLIENT_ID_MAX]

    @property
    def request_id(self) -> str:
        """The id of its request."""
        if not self._request_id:
            self._request_id = uuid.uuid4().hex[:16]
        return self._request_id

    @property
    def current(self) -> bool:
        """Whether the present task is that of the call."""
        return self._task is not None and _present_task() is self._task


def _present_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None


_CALL: Final[ContextVar[CallIds | None]] = ContextVar("call", default=None)


def begin_call(request_id: str, client_id: str) -> CallIds:
    """Note that the present task answers this call, until it answers another one or ends. Either may be ""."""
    ids = CallIds(request_id, client_id)
    _CALL.set(ids)
    return ids


def current_request_id() -> str:
    """Return the id of the request that the present task answers; "" if it answers none."""
    ids = _CALL.get()
    return ids.request_id if ids is not None and ids.current else ""


def call_fields() -> dict[str, str]:
    """Return the fields of a log line that is written for a call; none if the present task answers none."""
    ids = _CALL.get()
    if ids is None or not ids.current:
        return {}
    return {"request_id": ids.request_id} | ({"client_id": ids.client_id} if ids.client_id else {})


def with_call_ids(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add these fields to a log line: a processor of structlog. What the line says itself stays."""
    for name, text in call_fields().items():
        event.setdefault(name, text)
    return event
