"""A fake cluster whose leaders respond to acknowledgements late."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.leader import Leader


def acknowledging_within(seconds: float) -> type[FakeCluster]:
    """Return a fake cluster that responds to requests with acknowledgements after this time, and to all others at
    once."""

    class Slow(Leader):
        async def _answer(self, message: Any, run: Any, stream: Any) -> None:
            if run.acknowledged:
                await asyncio.sleep(seconds)
            await super()._answer(message, run, stream)

    class Slowed(FakeCluster):
        def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
            return [
                (name, Slow(self, node) if type(service) is Leader else service)
                for name, service in super().services(node)
            ]

    return Slowed
