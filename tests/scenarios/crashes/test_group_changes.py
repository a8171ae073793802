"""Coordinators die before or after each write and call that a change to a group makes, one place per run.

Each story is first played without a crash, which gives the expected result. Then it is played for each of its places,
once for each set of processes that dies there: the next owners take over, and the command is repeated, or time passes.
The final group log and share state must be those of the run without a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Final

import pytest

from tests.scenarios.crashes.places import Places
from tests.scenarios.crashes.stored import Stored
from tests.scenarios.crashes.stories import AGAIN, AWAY_S, GROUPS, SHAPE, STATES, STORIES, Stage
from tests.simulation import determinism
from tests.simulation.world import World

VICTIMS: Final = ((GROUPS,), (STATES,), (GROUPS, STATES))
#: Longer than the sweep's interval, the time limit for an initialisation or deletion of state, and that for a call
#: (GC-80, GC-108).
LONG_S: Final = 70
CRASHES = [
    pytest.param(name, at, victims, id=f"{name}, {'+'.join(victims)} die {place} ({at})")
    for name, story in STORIES.items()
    for at, place in enumerate(story.places, 1)
    for victims in VICTIMS
]


async def _interrupted(stage: Stage, name: str, places: Places) -> None:
    """Run the command until it ends or processes die in it; then others take over. A share coordinator is down for
    longer than a group coordinator retries its calls, so that these fail."""
    places.armed = True
    call = asyncio.ensure_future(STORIES[name].command(stage))
    died = asyncio.ensure_future(places.crashed.wait())
    await asyncio.wait([call, died], return_when=asyncio.FIRST_COMPLETED)
    if not died.done():
        await asyncio.sleep(1)  # what a heartbeat starts continues after its response
    places.armed = False
    for victim in (GROUPS, STATES):
        if not stage.world.present(victim):
            await asyncio.sleep(AWAY_S if victim == STATES else 0)
            await stage.world.start(victim)
    await stage.world.settled()
    died.cancel()
    code = await call
    assert code == 0 or (places.crashed.is_set() and code in AGAIN), code


async def _repeated(stage: Stage, name: str) -> None:
    for _ in range(30):
        if (code := await STORIES[name].command(stage)) not in AGAIN:
            assert code == 0
            return
        await asyncio.sleep(2)
    raise AssertionError("thirty repeated commands were all refused with a retriable error")


Body = Callable[[Stage, Places], Awaitable[None]]


def _play(name: str, body: Body, at: int = 0, victims: Sequence[str] = ()) -> Stored:
    """Run the `before` step of the story `name`, then `body`, and return the store's contents at the end; epochs are
    left out, except for deletions."""

    async def main() -> Stored:
        world = World(1, SHAPE)
        stage, places = Stage(world), Places(world, at, victims)
        await stage.prepare()
        await STORIES[name].before(stage)
        await asyncio.sleep(1)
        await body(stage, places)
        found = stage.stored()
        found.require_epochs()
        assert world.complaints == []
        return found if name.startswith("delete") else found.without_epochs()

    return determinism.run(1, main)


@cache
def _undisturbed(name: str, command: bool, goes_on: bool) -> tuple[Stored, tuple[str, ...]]:
    """Return the store's contents at the end of a run without a crash, with or without the command, and the places
    passed."""
    passed: list[str] = []

    async def body(stage: Stage, places: Places) -> None:
        if command:
            await _interrupted(stage, name, places)
            passed.extend(places.names)
        if goes_on:
            await STORIES[name].goes_on(stage)

    return _play(name, body), tuple(passed)


@pytest.mark.parametrize("name", STORIES)
def test_undisturbed_each_command_passes_these_places_and_changes_what_is_stored(name: str) -> None:
    end, passed = _undisturbed(name, True, False)
    assert passed == STORIES[name].places
    assert end != _undisturbed(name, False, False)[0]


@pytest.mark.rule("GC-94", "GC-103", "GC-69d")
@pytest.mark.parametrize(("name", "at", "victims"), CRASHES)
def test_the_repeated_command_leaves_what_an_undisturbed_one_leaves(
    name: str, at: int, victims: tuple[str, ...]
) -> None:
    async def body(stage: Stage, places: Places) -> None:
        await _interrupted(stage, name, places)
        assert places.crashed.is_set()
        await _repeated(stage, name)
        if name == "initialise":
            await STORIES[name].goes_on(stage)

    assert _play(name, body, at, victims) == _undisturbed(name, True, name == "initialise")[0]


@pytest.mark.rule("OP-6", "GC-94", "GC-103", "GC-69d")
@pytest.mark.parametrize(("name", "at", "victims"), CRASHES)
def test_a_change_ends_without_being_repeated_once_its_first_write_is_there(
    name: str, at: int, victims: tuple[str, ...]
) -> None:
    begun = at > 1 or GROUPS not in victims

    async def body(stage: Stage, places: Places) -> None:
        await _interrupted(stage, name, places)
        assert places.crashed.is_set()
        await asyncio.sleep(LONG_S)
        await STORIES[name].goes_on(stage)

    assert _play(name, body, at, victims) == _undisturbed(name, begun, True)[0]
