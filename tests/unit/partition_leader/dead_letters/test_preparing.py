"""A round's letters: copies where they can be had and fit, and no more bytes than a round may have."""

from __future__ import annotations

import pytest

from kip932.errors import KafkaStorageError
from partition_leader.dead_letters import preparing
from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.letter_codec import Origin
from partition_leader.dead_letters.preparing import Prepared, Preparing
from partition_leader.dead_letters.source_codec import SourceRecords
from partition_leader.share.core.effects import DLQ_CLIENT_REJECT
from tests.unit.partition_leader.dead_letters.letters import with_values
from tests.unit.partition_leader.share.worlds import World, run


def stretch(first: int, last: int, **fields: bool) -> Stretch:
    return Stretch(first, last, 1, 1, DLQ_CLIENT_REJECT, 0, 0, **fields)


async def prepare(world: World, *stretches: Stretch, limit: int = 1 << 24, copies: bool = True) -> Prepared:
    log = world.log() if copies else None
    return await Preparing(Origin("g", "t", 0), log, limit, 1_000).prepare(list(stretches))


def spans(found: list[Stretch]) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in found]


@pytest.mark.rule("PL-911")
def test_copies_are_read_back_and_those_that_are_too_large_go_without() -> None:
    async def scenario(world: World) -> None:
        await world.log().append([with_values(b"a", b"x" * 2_000, b"c")], 1_000)
        await world.log().append([with_values(b"d")], 1_000)
        found = await prepare(world, stretch(0, 3), limit=1_000)
        assert [one.record.value for one in found.letters] == [b"a", b"", b"c", b"d"]
        assert [one.timestamp_ms for one in found.letters] == [7, 1_000, 7, 7]
        assert found.letters[1].record.key == b"g:t:0:1"
        assert (found.without_copy, spans(found.taken), found.too_large) == ([1], [(0, 3)], [])
        bare = await prepare(world, stretch(0, 0, bare=True), stretch(2, 2))
        assert [one.record.value for one in bare.letters] == [b"", b"c"]
        assert bare.without_copy == [0]

    run(scenario)


@pytest.mark.rule("PL-912")
def test_a_round_ends_at_its_bytes_and_the_rest_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "ROUND_BYTES", 3_000)

    async def scenario(world: World) -> None:
        await world.log().append([with_values(*[b"x" * 1_000] * 5)], 1_000)
        found = await prepare(world, stretch(0, 2), stretch(3, 4))
        assert (spans(found.taken), spans(found.left)) == ([(0, 2)], [(3, 4)])
        whole = await prepare(world, stretch(0, 4), copies=False)
        assert (len(whole.letters), whole.left, whole.without_copy) == (5, [], [])

    run(scenario)


def test_letters_that_are_too_large_even_alone_are_set_apart() -> None:
    async def scenario(world: World) -> None:
        found = await prepare(world, stretch(0, 4), limit=50, copies=False)
        assert (found.letters, spans(found.too_large)) == ([], [(0, 4)])

    run(scenario)


@pytest.mark.rule("PL-907", "PL-911")
def test_a_log_that_cannot_be_read_at_present_is_no_reason_to_write_without_a_copy() -> None:
    async def scenario(world: World) -> None:
        await world.log().append([with_values(b"a")], 1_000)

        async def fails(*_: int) -> None:
            raise KafkaStorageError("the store is away")

        log = world.log()
        log.read = fails  # type: ignore[assignment,method-assign]
        with pytest.raises(KafkaStorageError):
            await SourceRecords(log, 0).at(0)

    run(scenario)


@pytest.mark.rule("PL-913")
def test_offsets_below_the_log_and_in_holes_have_no_source() -> None:
    async def scenario(world: World) -> None:
        await world.log().append([with_values(b"a", b"b")], 1_000)
        await world.log().raise_log_end(5)
        await world.log().append([with_values(b"c")], 1_000)
        await world.log().move_log_start(1)
        sources = SourceRecords(world.log(), 5)
        found = [await sources.at(offset) for offset in range(6)]
        assert [one.record.value if one else None for one in found] == [None, b"b", None, None, None, b"c"]

    run(scenario)
