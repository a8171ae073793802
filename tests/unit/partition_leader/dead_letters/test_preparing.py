"""The dead letters of one round: with copies of their records where these are available and fit, and of bounded total
size."""

from __future__ import annotations

import pytest

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.errors import KafkaStorageError
from partition_leader.dead_letters import preparing
from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.letter_codec import Origin
from partition_leader.dead_letters.preparing import LetterBuilder, Prepared, SourceRecords
from partition_leader.share_partition.core.effects import DLQ_CLIENT_REJECT
from partition_leader.topic_log.core.batch import NewBatch
from tests.unit.partition_leader.dead_letters.letters import with_values
from tests.unit.partition_leader.share_partition.worlds import World, run


def stretch(first: int, last: int, *, bare: bool = False, reason: str = "") -> Stretch:
    return Stretch(first, last, 1, 1, DLQ_CLIENT_REJECT, 0, 0, bare=bare, reason=reason)


async def prepare(
    world: World, *stretches: Stretch, limit: int = 1 << 24, copies: bool = True, counts_hops: bool = False
) -> Prepared:
    origin = Origin("g", "t", 0, "id")
    making = LetterBuilder(origin, world.log(), limit, 1_000, copies=copies, counts_hops=counts_hops)
    return await making.prepare(list(stretches))


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


@pytest.mark.rule("PL-943", "PL-911")
def test_a_letter_that_does_not_fit_with_its_reason_has_none_and_keeps_its_copy() -> None:
    async def scenario(world: World) -> None:
        await world.log().append([with_values(b"a", b"x" * 400, b"x" * 2_000)], 1_000)
        found = await prepare(world, stretch(0, 2, reason="y" * 500), limit=1_000)
        has = [any(head.key == "__dlq.errors.reason" for head in one.record.headers) for one in found.letters]
        copied = [one.record.HasField("value") for one in found.letters]
        assert list(zip(has, copied, strict=True)) == [(True, True), (False, True), (True, False)]
        assert (found.without_copy, found.too_large) == ([2], [])
        (bare,) = (await prepare(world, stretch(0, 0, reason="y" * 900, bare=True), limit=1_000)).letters
        assert bare.record.headers[0].key == "__dlq.errors.topic"

    run(scenario)


@pytest.mark.rule("PL-923")
@pytest.mark.parametrize("copies", [True, False])
def test_letters_count_how_many_in_a_row_led_to_them_and_end_after_four(copies: bool) -> None:
    async def scenario(world: World) -> None:
        for hops in (None, b"", b"2", b"3", b"4", b"99", b"x"):
            record = Record(value=b"v")
            if hops is not None:
                record.headers.add(key="__dlq.errors.topic", value=b"t")
            if hops:
                record.headers.add(key="__dlq.errors.hops", value=hops)
            batch = RecordBatch(records=[record])
            await world.log().append([NewBatch(batch.SerializeToString(), 1, 7)], 1_000)
        found = await prepare(world, stretch(0, 6), copies=copies, counts_hops=True)
        said = [{header.key: header.value for header in one.record.headers} for one in found.letters]
        assert [one.offset for one in found.letters] == [0, 1, 2, 3, 6]
        assert [one.get("__dlq.errors.hops") for one in said] == [None, b"2", b"3", b"4", b"2"]
        assert spans(found.circling) == [(4, 5)]
        assert [one.record.value for one in found.letters] == [b"v" if copies else b""] * 5
        plain = await prepare(world, stretch(0, 6), copies=copies)
        assert (len(plain.letters), plain.circling) == (7, []), (
            "a topic that accepts no dead letters must not be queried"
        )

    run(scenario)
