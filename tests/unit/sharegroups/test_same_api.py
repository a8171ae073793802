"""The blocking and the asyncio clients are called in the same way: names, order, kinds and defaults of parameters."""

from __future__ import annotations

import inspect

import pytest

import sharegroups
from sharegroups import aio

#: Methods that only one of the two APIs has, and why.
DIFFERENT = {
    "Producer": {
        "send",  # the blocking one takes a time-out; in an event loop asyncio.timeout serves that purpose
        "poll",  # runs callbacks on the caller's thread; in an event loop they run by themselves
        # used by the blocking producer
        "abort_transaction", "append", "begin_transaction", "block_s", "buffer_full", "delivery_timeout_s",
        "end_transaction", "ensure_topic", "knows", "record", "transaction_not_begun",
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
    assert given == [one for one in _methods(sharegroups.Producer)["send"] if one[0] != "timeout"]
    assert given == [one for one in _methods(sharegroups.Producer)["produce"] if one[0] != "on_delivery"]


@pytest.mark.rule("CL-45")
def test_every_call_and_value_that_the_library_promises_is_there() -> None:
    consumer = {
        "poll", "acknowledge", "acknowledge_offset", "commit_sync", "commit_async", "subscribe", "unsubscribe",
        "subscription", "set_acknowledgement_commit_callback", "close", "wakeup", "acquisition_lock_timeout_ms",
        "metrics",
    }  # fmt: skip
    admin = {
        "list_groups", "describe_share_groups", "list_share_group_offsets", "alter_share_group_offsets",
        "delete_share_group_offsets", "delete_share_groups", "describe_configs", "incremental_alter_configs",
        "create_acls", "describe_acls", "delete_acls", "alter_client_quotas", "describe_client_quotas",
        "describe_user_scram_credentials", "alter_user_scram_credentials",
    }  # fmt: skip
    assert consumer <= _methods(sharegroups.ShareConsumer).keys()
    assert "metrics" in _methods(sharegroups.Producer)
    assert admin <= _methods(sharegroups.Admin).keys()
    assert {kind.name: kind.value for kind in sharegroups.AcknowledgeType} == {
        "ACCEPT": 1,
        "RELEASE": 2,
        "REJECT": 3,
        "RENEW": 4,
    }
    defaults = {name: value for name, _, value in _methods(sharegroups.ShareConsumer)["acknowledge_offset"]}
    assert list(defaults) == ["self", "topic", "partition", "offset", "type", "delay", "undelivered", "reason"]
    assert defaults["type"] is sharegroups.AcknowledgeType.ACCEPT
    assert _methods(sharegroups.ShareConsumer)["poll"][1][2] is None, "without end"
    assert issubclass(sharegroups.IllegalStateError, RuntimeError)
    assert issubclass(sharegroups.ConcurrentModificationError, RuntimeError)
    assert issubclass(sharegroups.ConfigError, ValueError)
