"""INV-19: without faults everything makes progress: fetches end in time, clients recover, and no process has given
up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import RequestKey, begun_ms, request_of
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    ClientFailed,
    History,
    ProcessChanged,
    SessionAnswered,
    SessionAsked,
    SessionEnded,
)

#: The time after the end of all faults within which a client's call may still fail: by then state operations whose
#: responses were lost, which hold up others of their kind to the same node, have timed out (PL-721, PL-723).
_RECOVERED_MS: Final = 20_000
#: How much longer than requested a fetch may take: a read from the store, an iteration of the event loop.
_LATE_MS: Final = 500
#: How much longer acknowledgements may take: one state operation may still be in flight before their own (PL-723).
_WRITES_MS: Final = 30_000


class FetchesEnd:
    """Without faults a fetch gets its response when its wait is over, and acknowledgements when they are stored."""

    rules: tuple[str, ...] = ("INV-19",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check requests that are made after all shards are served again, to processes that keep running. A session's
        end also ends its requests."""
        del final
        served_ms = begun_ms(history, "drain")
        if served_ms is None:
            return
        asked: dict[RequestKey, SessionAsked] = {}
        by_session: dict[tuple[str, int, str, str], list[RequestKey]] = defaultdict(list)
        end_ms = history.events[-1].at_ms
        for event in history.of(SessionAsked, SessionAnswered, SessionEnded, ProcessChanged):
            if isinstance(event, SessionAsked):
                if event.at_ms >= served_ms:
                    asked[request_of(event)] = event
                    session = (event.process, event.incarnation, event.group_id, event.member_id)
                    by_session[session].append(request_of(event))
            elif isinstance(event, SessionAnswered):
                request = asked.pop(request_of(event), None)
                if request is not None and event.at_ms > _due_ms(request):
                    yield _late(request, f"got its response at {event.at_ms}")
            elif isinstance(event, SessionEnded):
                for key in by_session.pop((event.process, event.incarnation, event.group_id, event.member_id), ()):
                    asked.pop(key, None)
            else:
                for key in [key for key in asked if key[0] == event.process]:
                    del asked[key]
        for request in asked.values():
            if end_ms > _due_ms(request):
                yield _late(request, "was never answered")


def _due_ms(request: SessionAsked) -> int:
    return request.at_ms + max(request.max_wait_ms, 0) + (_WRITES_MS if request.acks else _LATE_MS)


def _late(request: SessionAsked, what: str) -> Violation:
    return Violation(
        "INV-19",
        f"{request.call} {request.request} of {request.member_id} at {request.process}, asked at {request.at_ms} with "
        f"{request.max_wait_ms} ms to wait, {what}",
        (request,),
    )


class ClientsRecover:
    """From some time after the last fault, no client's call fails and every group can be drained."""

    rules: tuple[str, ...] = ("INV-19",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check the failures that applications saw, and the reasons that processes gave when they gave up."""
        calm_ms = begun_ms(history, "calm")
        for event in history.of(ClientFailed):
            hopeless = event.call == "drain"
            if hopeless or (calm_ms is not None and event.at_ms > calm_ms + _RECOVERED_MS):
                yield Violation("INV-19", f"{event.process}: {event.call} fails with {event.error}", (event,))
        for words in final.fatal:
            yield Violation("INV-19", words)
