"""The blocking and the asyncio clients are called in the same way: names, order, kinds and defaults of parameters."""

from __future__ import annotations

import inspect

import pytest

import sharegroups
from sharegroups import aio

#: What stands in one of them only, and why.
DIFFERENT = {
    "Producer": {
        "send",  # awaits a delivery; blocking callers have on_delivery
        "poll",  # runs callbacks on the caller's thread; in an event loop they run by themselves
        # what the blocking producer uses of the asyncio one
        "append", "begin_transaction", "block_s", "buffer_full", "delivery_timeout_s", "end_transaction",
        "ensure_topic", "knows", "record",
    },
}  # fmt: skip


def _methods(kind: type) -> dict[str, list[tuple[str, object, object]]]:
    return {
        name: [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }


@pytest.mark.rule("CL-45")
@pytest.mark.parametrize("name", aio.__all__)
def test_both_are_called_alike(name: str) -> None:
    left_out = DIFFERENT.get(name, set())
    blocking = _methods(getattr(sharegroups, name))
    asynchronous = _methods(getattr(aio, name))
    for methods in (blocking, asynchronous):
        for method in left_out:
            methods.pop(method, None)
    assert blocking == asynchronous


def test_a_record_is_given_to_every_producer_in_the_same_way() -> None:
    given = _methods(aio.Producer)["send"]
    assert given == [one for one in _methods(sharegroups.Producer)["produce"] if one[0] != "on_delivery"]
