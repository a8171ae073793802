"""When metadata is known to be complete."""

from __future__ import annotations

import asyncio

import pytest

from share_coordinator.metadata import SettledMetadata
from tests.unit.share_coordinator.hosts import LoopClock
from tests.unit.virtual_time import run


class Store:
    """A metadata log whose end is read with some delay."""

    def __init__(self) -> None:
        self.version = 3
        self.end: int | None = 5
        self.broken = False
        self.reads = 0

    async def metadata_end(self) -> int | None:
        self.reads += 1
        end = self.end
        await asyncio.sleep(0.1)
        if self.broken:
            raise OSError("away")
        return end


def _view(store: Store) -> SettledMetadata:
    return SettledMetadata({b"t": 4}.get, lambda: store.version, store.metadata_end, LoopClock())


@pytest.mark.rule("SC-80", "CM-20")
def test_an_image_is_complete_once_it_reached_the_end_that_was_read_afterwards() -> None:
    async def main() -> None:
        store = Store()
        view = _view(store)
        assert not view.settled_since(0)
        assert not view.settled_since(0)
        await asyncio.sleep(0.2)
        assert not view.settled_since(0), "the image is still behind"
        store.end, store.version = 9, 5
        assert view.settled_since(0)
        assert store.reads == 1
        assert not view.settled_since(150), "what was asked at 0 ms says nothing of 150 ms"
        await asyncio.sleep(0.2)
        assert not view.settled_since(150)
        store.version = 9
        assert view.settled_since(150)
        assert store.reads == 2
        store.version = 8
        assert not view.settled_since(150), "an image that goes back has lost entries"
        assert view.partition_count(b"t") == 4
        assert view.partition_count(b"u") is None

    run(main())


@pytest.mark.rule("SC-80")
@pytest.mark.parametrize("broken", [True, False])
def test_a_store_that_cannot_tell_is_asked_again(broken: bool) -> None:
    async def main() -> None:
        store = Store()
        store.version, store.broken, store.end = 9, broken, None
        view = _view(store)
        assert not view.settled_since(0)
        await asyncio.sleep(1)
        assert not view.settled_since(0)
        await asyncio.sleep(1)
        store.broken, store.end = False, 9
        assert not view.settled_since(0)
        await asyncio.sleep(1)
        assert view.settled_since(0)
        view.close()

    run(main())
