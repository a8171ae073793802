"""Transactions that are not open in any log, and whose producer does not come back, are still ended."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import CoordinatorNotAvailableError
from tests.support.virtual_time import virtual
from transaction_coordinator.core.transaction import Fate, Identity, State
from transaction_coordinator.forgotten import GRACE_MS, ROUND_S, ForgottenTransactions
from transaction_coordinator.records import Page

from .test_coordinator import ID, P, Q, World, opened


@pytest.mark.rule("CM-155", "CM-156")
@virtual
async def test_what_joined_and_was_never_written_is_aborted_once_its_time_out_is_long_over() -> None:
    async with World() as world:
        identity = await opened(world.node("died"))
        node = world.node()
        rounds = ForgottenTransactions(node)
        await asyncio.sleep(10 + GRACE_MS / 1000 - 5)
        await rounds.round()
        assert (await world.record()).state is State.ONGOING, "its leaders have time to find it"
        await asyncio.sleep(10)
        await rounds.round()
        await asyncio.sleep(1)
        assert (await world.record()).identity == Identity(identity.producer_id, identity.epoch + 1)
        assert sorted(world.leaders.written) == [(P, 0, False), (Q, 0, False)]


@pytest.mark.rule("CM-155")
@virtual
async def test_a_decision_whose_node_died_is_finished_as_it_was_made() -> None:
    async with World() as world:
        died = world.node("died")
        identity = await opened(died)
        world.leaders.silent = {"q:1"}
        assert await died.end(ID, identity, [P], commit=True) is None
        await died.stop()
        world.leaders.silent = set()
        rounds = asyncio.create_task(ForgottenTransactions(world.node()).run())
        await asyncio.sleep(ROUND_S + 2)
        rounds.cancel()
        record = await world.record()
        assert (record.state, record.ended[-1].committed) == (State.EMPTY, True)
        assert {each for each in world.leaders.written if each[0] == Q} == {(Q, 0, True)}


@pytest.mark.rule("CM-155")
@virtual
async def test_a_round_that_the_store_cut_short_is_made_again() -> None:
    asked: list[str] = []

    class Away:
        async def page(self, cursor: str) -> Page:
            asked.append(cursor)
            raise CoordinatorNotAvailableError

        async def resolve(self, transactional_id: str, identity: Identity) -> tuple[Fate, int]:
            raise AssertionError

    rounds = asyncio.create_task(ForgottenTransactions(Away()).run())
    await asyncio.sleep(3 * ROUND_S + 1)
    rounds.cancel()
    assert asked == ["", "", ""]
