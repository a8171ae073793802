"""A transport to the fake cluster whose calls a test can inspect, answer in the node's place, or end with a status."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from kip932.rpc.transport import TransportError, TransportStatus
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.virtual_time import now_s
from tests.twin.transport import InMemoryTransport


class Asked(NamedTuple):
    """One unary call: its time, address, method and request."""

    at_s: float
    address: str
    method: str
    request: Any


class HookedTransport(InMemoryTransport):
    """Records every unary call. `instead` holds, for the next calls of a method, either a status that ends the call or
    a function that changes the node's response."""

    def __init__(self, fake: FakeCluster) -> None:
        super().__init__(fake.network, "client")
        self.asked: list[Asked] = []
        self.instead: dict[str, deque[TransportStatus | Callable[[Any], None]]] = defaultdict(deque)

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        copy = type(request).FromString(request.SerializeToString())
        self.asked.append(Asked(now_s(), address, method.name, copy))
        hook = self.instead[method.name].popleft() if self.instead[method.name] else None
        if isinstance(hook, TransportStatus):
            raise TransportError(hook, address, "by the test")
        answer = await super().call(address, method, request, timeout_s)
        if hook is not None:
            hook(answer)
        return answer

    def calls(self, method: str) -> list[Asked]:
        return [one for one in self.asked if one.method == method]
