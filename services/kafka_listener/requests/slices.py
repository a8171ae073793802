"""Long lists are translated, and long answers written, in slices; other tasks of the node run in between (KL-120)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kafka_listener.messages.apis import Api
from shard_runtime.rpc.bounds import Turns

#: How many items are translated before other tasks get to run; one takes up to about 10 µs.
ITEMS_SLICE: Final = 500
#: How many elements of an answer are written before other tasks get to run; one takes up to about 4 µs.
ELEMENTS_SLICE: Final = 1_000

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def slices() -> Turns:
    """Return the slices of one request or answer."""
    return Turns(ITEMS_SLICE)


async def made_of(items: Iterable[_Item], make: Callable[[_Item], _Made], turns: Turns) -> list[_Made]:
    """Return what `make` makes of each item, in their order."""
    made = []
    for item in items:
        await turns.step()
        made.append(make(item))
    return made


async def written(api: Api, version: int, response: Any) -> list[bytes]:
    """Return the parts of an answer. Raises UnwritableMessageError as `Api.encode_response` does."""
    parts: list[bytes] = []
    turns = Turns(ELEMENTS_SLICE)
    for _ in api.response_steps(version, response, parts):
        await turns.step()
    return parts
