"""What all calls have to pass: their number, and the caller as a handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kip932.acls import ANONYMOUS, Operation, ResourceType
from kip932.errors import ThrottlingQuotaExceededError
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import CERTIFICATE, UNKNOWN, Identity
from shard_runtime.rpc.budget import Budget, Holder
from shard_runtime.rpc.gate import Caller, Gate, OpenCalls

ALICE = Identity("User:alice", CERTIFICATE)
NEEDS = {ResourceType.TOPIC: Operation.READ}


def gate(**options: Any) -> Gate:
    unused = cast(Any, None)
    return Gate(Budget(1_000_000), unused, unused, OpenCalls(8), **options)


def looped(test: Callable[[], None]) -> None:
    async def run() -> None:
        test()

    asyncio.run(run())


@pytest.mark.rule("CM-202")
def test_a_user_has_three_calls_for_each_that_is_left() -> None:
    def test() -> None:
        calls, refused = OpenCalls(8), []
        calls.on_refused = lambda user, number: refused.append((user, number))
        for _ in range(6):
            calls.begin("alice")
        with pytest.raises(ThrottlingQuotaExceededError, match="alice has 6 calls"):
            calls.begin("alice")
        calls.begin("bob")
        calls.end("alice")
        calls.begin("bob")
        assert (refused, calls.refused) == ([("alice", 6)], 1)

    looped(test)


@pytest.mark.rule("CM-61", "CM-92")
def test_a_handler_sees_the_caller_with_its_rights_and_its_share() -> None:
    """Of CM-61 that a handler has the rights of its caller, by name or as anonymous; what entries allow is shown beside
    `access`."""

    def test() -> None:
        used = gate(access=Access(["User:alice"]))
        context = used.context(Caller("tcp:1", "10.0.0.1", "me", ALICE, lambda: 3.0), NEEDS, 5.0)
        assert (context.peer, context.connection_id, context.client_id) == ("10.0.0.1", "tcp:1", "me")
        assert (context.principal, context.deadline_s, context.move_in_s) == ("User:alice", 3.0, 5.0)
        assert context.share.holder == Holder("tcp:1", "User:alice")
        assert context.may(ResourceType.TOPIC, "jobs")
        unknown = used.context(Caller("tcp:2", "10.0.0.1", "", UNKNOWN), NEEDS)
        assert (unknown.principal, unknown.deadline_s) == (None, None)
        assert unknown.rights is not None
        assert unknown.rights.principal == ANONYMOUS
        assert not unknown.may(ResourceType.TOPIC, "jobs")

    looped(test)


@pytest.mark.rule("CM-61", "CM-92")
def test_at_the_port_for_nodes_handlers_ask_for_no_rights_and_connections_share_alike() -> None:
    def test() -> None:
        used = gate(access=Access(["User:alice"]), peers_only=True)
        context = used.context(Caller("tcp:1", "10.0.0.1", "", ALICE), NEEDS)
        assert context.rights is None
        assert context.share.holder == Holder("tcp:1", "")
        assert used.user_of(context) == "tcp:1"

    looped(test)


@pytest.mark.rule("CM-202")
def test_calls_of_unknown_callers_of_a_host_count_together() -> None:
    def test() -> None:
        used = gate()
        assert used.user_of(used.context(Caller("tcp:1", "10.0.0.1", "", UNKNOWN), NEEDS)) == "10.0.0.1"
        assert used.user_of(used.context(Caller("tcp:1", "10.0.0.1", "", ALICE), NEEDS)) == "User:alice"

    looped(test)
