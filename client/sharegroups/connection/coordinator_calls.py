"""Calls to a group's coordinator, which follow it if it moves to another node (CL-46), and calls to any node. They
raise KafkaError."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, TypeVar

from kip932.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    InQuarantineError,
    InvalidRequestError,
    KafkaError,
    NetworkError,
    NotCoordinatorError,
    RequestTimedOutError,
    RetriableError,
    SaslAuthenticationFailedError,
    ThrottlingQuotaExceededError,
    UnsupportedVersionError,
)
from kip932.rpc.transport import Method, TransportError, TransportStatus
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.silent_nodes import while_in_charge
from sharegroups.connection.waits import Wait

T = TypeVar("T")

#: Begins what an error says of a node that takes calls and leaves them without an answer.
SILENT: Final = "Such a node may be"
#: How many nodes an error names.
_NAMED_MAX: Final = 5
#: Requests that change nothing, so several nodes may be asked in parallel.
_QUESTIONS: Final = frozenset(
    method.path for method in (wire.METADATA, wire.FIND_COORDINATOR, wire.DESCRIBE_CLUSTER, wire.DESCRIBE_CONFIGS)
)


_FATAL: Final[dict[TransportStatus, type[KafkaError]]] = {
    TransportStatus.UNAUTHENTICATED: SaslAuthenticationFailedError,
    TransportStatus.PERMISSION_DENIED: GroupAuthorizationFailedError,
    TransportStatus.UNIMPLEMENTED: UnsupportedVersionError,
    TransportStatus.INVALID_ARGUMENT: InvalidRequestError,
}


def fatal_error(error: TransportError) -> KafkaError | None:
    """Return the error that ends a membership if a retry cannot help (CL-16); None if a retry may help."""
    if error.retriable:
        return None
    text = error.refusal
    if error.status is TransportStatus.UNIMPLEMENTED:
        text = (
            f"{error}. The node's version does not have this call (an older one? then upgrade it), or this is the port "
            "that nodes use among themselves (internal.listen.port) or that serves health alone (health.listen.port); "
            "clients take listen.port."
        )
    return _FATAL.get(error.status, InvalidRequestError)(text)


async def at_coordinator(
    cluster: Cluster,
    group_id: str,
    timeout_s: float,
    call: Callable[[str], Coroutine[Any, Any, T]],
    places: AbstractAsyncContextManager[Any] | None = None,
) -> T:
    """Retry `call(address)` at the group's coordinator until it succeeds. Raises a KafkaError that a retry cannot help,
    such as InQuarantineError, or RequestTimedOutError after `timeout_s`.

    `places` limits how many requests are in flight at a time: it is held during a request, but not while a retry waits.
    """
    asking = nullcontext() if places is None else places
    backoff = cluster.backoff()
    last: Exception = NetworkError("no coordinator answered")
    address: str | None = None
    refused = False
    wait = Wait(f"the coordinator of group {group_id!r}")

    def find() -> Coroutine[Any, Any, str]:
        return cluster.find_coordinator(group_id)

    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    async with asking:
                        if address is None:
                            address, refused = await find(), False
                        return await while_in_charge(call(address), address, find, f"group {group_id!r}")
                except InQuarantineError:
                    raise
                except (CoordinatorLoadInProgressError, ThrottlingQuotaExceededError) as error:
                    last, refused = error, address is not None
                except (CoordinatorError, NetworkError) as error:
                    last, refused = error, address is not None and isinstance(error, CoordinatorError)
                    address = None
                except TransportError as error:
                    if (fatal := fatal_error(error)) is not None:
                        raise fatal from error
                    last, address, refused = error, None, False
                wait.last = str(last)
                await asyncio.sleep(backoff.next_ms() / 1000)
    except TimeoutError:
        heard = f"has refused for {timeout_s:g} s" if refused else f"did not answer within {timeout_s:g} s"
        text = f"the coordinator of group {group_id!r} {heard}; last: {last}{_unled(last)}"
        raise RequestTimedOutError(text) from None
    finally:
        wait.end()


def _unled(last: Exception) -> str:
    """Return what to try when nodes refuse because none coordinates the group."""
    hint = " No node has taken the group over: do the nodes reach their store? Their logs say why"
    return hint if isinstance(last, NotCoordinatorError) else ""


async def at_any(
    cluster: Cluster, method: Method[wire.RequestT, wire.ResponseT], request: wire.RequestT, timeout_s: float
) -> wire.ResponseT:
    """Call any node, retrying until one answers. Raises KafkaError, or RequestTimedOutError after `timeout_s`."""
    call = cluster.ask_any if method.path in _QUESTIONS else cluster.call_any
    one_s = min(timeout_s, cluster.timeout_s)
    return await until_answered(cluster, method.name, timeout_s, lambda: call(method, request, one_s))


async def until_answered(cluster: Cluster, what: str, timeout_s: float, call: Callable[[], Awaitable[T]]) -> T:
    """Retry `call()` until it succeeds. Raises a KafkaError that a retry cannot help, or RequestTimedOutError after
    `timeout_s`. `what` names the request in that error."""
    backoff = cluster.backoff()
    last: KafkaError | None = None
    wait = Wait(what)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await call()
                except RetriableError as error:
                    last = error
                    wait.last = str(error)
                except TransportError as error:
                    raise fatal_error(error) or NetworkError(str(error)) from error
                await asyncio.sleep(backoff.next_ms() / 1000)
    except TimeoutError:
        found = f"last: {last}" if last else _silence(cluster)
        raise RequestTimedOutError(f"{what} was not answered within {timeout_s:g} s; {found}") from None
    finally:
        wait.end()


def _silence(cluster: Cluster) -> str:
    """Describe nodes that did not even fail within the time: a node that is not there refuses a connection at once."""
    known = sorted(cluster.addresses())
    more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
    return (
        f"neither an answer nor a refusal came from {', '.join(known[:_NAMED_MAX])}{more}. {SILENT} overloaded, "
        "paused, or without its store; its log says more"
    )


async def while_no_room(cluster: Cluster, timeout_s: float, call: Callable[[], Awaitable[T]]) -> T:
    """Retry `call()` while its node has no capacity for it (CL-86), for at most `timeout_s`. Raises its errors."""
    backoff, clock = cluster.backoff(), asyncio.get_running_loop().time
    until_s = clock() + timeout_s
    while True:
        try:
            return await call()
        except TransportError as error:
            delay_s = backoff.next_ms() / 1000
            if error.throttle_ms <= 0 or clock() + delay_s >= until_s:
                raise
        await asyncio.sleep(delay_s)
