"""The checksum in every entry: who writes it, what it covers, and what a reader gets if it does not match."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.entry_checksum import checksum, key_proof, unplaced
from shard_runtime.record_log.cluster_store import NO_ENTRY
from shard_runtime.record_log.protocol import STREAM_START, Entry, ShardId, ShardKind, StreamAppend, StreamId
from shard_runtime.record_log.redis.keys import META_LOG
from shard_runtime.record_log.settlements import Choice, Settlement
from share_metrics.reader.decoding import decode
from share_metrics.reader.entries import stored_entry
from share_metrics.reader.schemas import Kind

from .world import World, flush

pytestmark = pytest.mark.asyncio

GROUP = ShardId(ShardKind.GROUP, "7")
TOPIC = ShardId(ShardKind.TOPIC, "AAAAAAAAAAAAAAAAAAAAAQ:0")


async def raw_entries(world: World, stream: str) -> list[tuple[StreamId, dict[bytes, bytes]]]:
    (reply,) = await world.store.raw(("XRANGE", stream, "-", "+"))
    found = []
    for raw_id, fields in reply:
        epoch, _, seq = raw_id.decode().partition("-")
        found.append((StreamId(int(epoch), int(seq)), dict(zip(fields[::2], fields[1::2], strict=True))))
    return found


async def put(world: World, stream: str, at: str, **fields: Any) -> None:
    words = [word for name, value in fields.items() for word in (name, value)]
    await world.store.raw(("XADD", stream, at, *words))


@pytest.mark.rule("CM-100")
async def test_every_entry_carries_a_checksum_over_all_of_it(world: World) -> None:
    one = await world.process()
    claimed = await one.claim(TOPIC)
    main, control = TOPIC.streams
    entries = [Entry(StreamId(claimed.epoch, 5), "B", b"head", b"batch"), Entry(StreamId(claimed.epoch, 6), "M", b"m")]
    snapshot = Entry(StreamId(claimed.epoch, 1), "L", b"start")
    await one.log.append(TOPIC, claimed.epoch, [StreamAppend(main, entries), StreamAppend(control, [snapshot])])
    store = await world.cluster_store()
    assert await store.append_metadata(1, b"one", NO_ENTRY)
    letters = []
    for stream in (main, control, META_LOG):
        for at, fields in await raw_entries(world, stream):
            kind, record, batch = fields[b"t"].decode(), fields[b"r"], fields.get(b"b", b"")
            assert fields[b"c"] == checksum(stream, at, kind, record, batch), (stream, at)
            letters.append(kind)
    assert letters == ["C", "B", "M", "C", "L", "V"]


@pytest.mark.rule("CM-100")
async def test_entries_and_no_ops_of_coordinators_carry_it_too(world: World) -> None:
    one = await world.process()
    for shard in (GROUP, ShardId(ShardKind.SHARE_STATE, "3")):
        claimed = await one.claim(shard)
        await world.store.order("a", "EXEC", "lose_reply")
        await one.log.append(shard, claimed.epoch, flush(shard, claimed.epoch, 1, b"one"))
        entries = await raw_entries(world, shard.streams[0])
        assert [fields[b"t"] for _, fields in entries] == [b"C", b"S", b"N"]
        for at, fields in entries:
            assert fields[b"c"] == checksum(shard.streams[0], at, fields[b"t"].decode(), fields[b"r"])


@pytest.mark.rule("CM-106")
async def test_what_coordinators_append_proves_whose_it_is_and_a_damaged_entry_brings_its_proof(world: World) -> None:
    one = await world.process()
    key = b"the key"
    for shard in (GROUP, ShardId(ShardKind.SHARE_STATE, "3")):
        claimed = await one.claim(shard)
        stream, record = shard.streams[0], b"\x12" + bytes([len(key)]) + key + b"rest"
        await world.store.order("a", "EXEC", "lose_reply")
        await one.log.append(shard, claimed.epoch, flush(shard, claimed.epoch, 1, record))
        entries = await raw_entries(world, stream)
        assert [fields.get(b"k") for _, fields in entries] == [
            None,
            key_proof(stream, entries[1][0], key),
            key_proof(stream, entries[2][0], b""),
        ]
        read = await one.log.read(stream, STREAM_START, None, 10)
        assert [(entry.damage, entry.key_proof) for entry in read] == [("", b"")] * 3  # intact ones need none
        fields = {name.decode(): value for name, value in entries[1][1].items()} | {"r": record[:-1] + b"?"}
        await put(world, stream, f"{claimed.epoch}-9", **fields)
        bad = (await one.log.read(stream, StreamId(claimed.epoch, 2), None, 10))[0]
        assert (bad.damage != "", bad.key_proof) == (True, fields["k"])
        del fields["t"]
        await put(world, stream, f"{claimed.epoch}-10", **fields)
        assert (await one.log.read(stream, StreamId(claimed.epoch, 9), None, 10))[0].key_proof == fields["k"]
        (raw,) = await world.store.raw(("XRANGE", stream, str(entries[1][0]), str(entries[1][0])))
        assert not stored_entry(stream, raw[0]).damage  # the pipeline reads it as intact


@pytest.mark.rule("CM-100")
async def test_a_claim_is_placed_by_the_store_under_epochs_of_any_size(world: World) -> None:
    """`claim_v2` extends the caller's checksum over an id that only the store knows."""
    one = await world.process()
    for floor in (1, 0x12345678, 0x7FFFFF00):
        claimed = await one.claim(GROUP, floor=floor)
        at, fields = (await raw_entries(world, GROUP.streams[0]))[-1]
        assert (at, claimed.epoch >= floor) == (StreamId(claimed.epoch, 0), True)
        assert fields[b"c"] == checksum(GROUP.streams[0], at, "C", fields[b"r"])


@pytest.mark.rule("CM-101")
@pytest.mark.parametrize("wrong", ["type", "record", "batch", "checksum", "id", "stream", "cut"])
async def test_a_reader_learns_what_is_not_as_it_was_written(world: World, wrong: str) -> None:
    one = await world.process()
    claimed = await one.claim(TOPIC)
    main, at = TOPIC.streams[0], StreamId(claimed.epoch, 5)
    there = "{tp:elsewhere:0}:log" if wrong == "stream" else main
    proof = checksum(there, StreamId(at.epoch, 4) if wrong == "id" else at, "B", b"head", b"batch")
    proof = {"checksum": proof[:-1] + bytes([proof[-1] ^ 1]), "cut": proof[:7]}.get(wrong, proof)
    fields: dict[str, str | bytes] = {"t": "B", "r": b"head", "b": b"batch", "c": proof}
    other: dict[str, dict[str, str | bytes]] = {"type": {"t": "M"}, "record": {"r": b"heae"}, "batch": {"b": b"batci"}}
    fields |= other.get(wrong, {})
    await put(world, main, str(at), **fields)
    (found,) = await one.log.read(main, StreamId(claimed.epoch, 0), None, 10)
    assert (found.id, found.damage != "") == (at, True)
    (found,) = await one.log.index(main, StreamId(claimed.epoch, 0), None, 10)
    assert (found.damage != "") == (wrong not in {"batch", "checksum"})  # unverifiable without the batch
    (found,) = await one.log.read_back(main, StreamId(claimed.epoch, 6), 1)
    assert (found.damage != "") == (wrong not in {"batch", "checksum"})


@pytest.mark.rule("CM-100")
async def test_entries_of_before_are_read_as_they_are(world: World) -> None:
    one = await world.process()
    claimed = await one.claim(TOPIC)
    main = TOPIC.streams[0]
    await put(world, main, f"{claimed.epoch}-5", t="B", r=b"head", b=b"batch")
    await put(world, main, f"{claimed.epoch}-6", t="M", r=b"marker")
    read = await one.log.read(main, StreamId(claimed.epoch, 0), None, 10)
    assert [(entry.kind, entry.batch, entry.damage) for entry in read] == [("B", b"batch", ""), ("M", b"", "")]
    assert [entry.damage for entry in await one.log.index(main, STREAM_START, None, 10)] == ["", "", ""]


@pytest.mark.rule("CM-101")
async def test_a_damaged_entry_is_a_malformed_row_of_the_pipeline_whatever_can_still_be_decoded(world: World) -> None:
    one = await world.process()
    claimed = await one.claim(GROUP)
    stream = GROUP.streams[0]
    await put(world, stream, f"{claimed.epoch}-1", t="C", r=b"", c=checksum(stream, (claimed.epoch, 1), "N", b""))
    (reply,) = await world.store.raw(("XRANGE", stream, "-", "+"))
    good, bad = (decode(Kind.GROUP, stored_entry(stream, raw)) for raw in reply)
    assert (good["record_type"], bad["record_type"]) == ("claim", "malformed")
    assert bad["error"].startswith("damaged")


@pytest.mark.rule("CM-101")
async def test_a_damaged_metadata_entry_is_read_as_one(world: World) -> None:
    store = await world.cluster_store()
    assert await store.append_metadata(1, b"one", NO_ENTRY)
    await put(world, META_LOG, "1-2", t="V", r=b"two", c=checksum(META_LOG, (1, 2), "V", b"twp"))
    one, two = await store.read_metadata(0, 10)
    assert (one.damage, two.data, two.damage != "") == ("", b"two", True)


@pytest.mark.rule("CM-103", "CM-114")
async def test_what_an_operator_says_to_skip_is_kept_beside_the_stream(world: World) -> None:
    one = await world.process()
    claimed = await one.claim(GROUP)
    await one.log.append(GROUP, claimed.epoch, flush(GROUP, claimed.epoch, 1, b"one"))
    assert await one.log.skipped(GROUP) == {}
    await one.log.skip(GROUP, StreamId(claimed.epoch, 1))
    await one.log.skip(GROUP, StreamId(claimed.epoch, 1))  # repeating it changes nothing
    assert list(await one.log.skipped(GROUP)) == [StreamId(claimed.epoch, 1)]
    assert await one.log.replay_from(GROUP) == STREAM_START
    drop = Settlement(Choice.DROP, "kim@ops", "no copy is left")
    await one.log.skip(GROUP, StreamId(claimed.epoch, 2), drop)
    await world.store.raw(("HSET", GROUP.skip_key, f"{claimed.epoch}-3", "1700000000"))  # by an older build
    first, second, old = (await one.log.skipped(GROUP)).values()
    assert (first.choice, second.choice, second.by, second.why) == (Choice.SKIP, *drop[:3])
    assert first.at_ms > 0
    assert old == Settlement(at_ms=1_700_000_000_000)
    store = await world.cluster_store()
    await store.skip_metadata(7)
    assert await store.skipped_metadata() == {7}


async def test_the_number_is_castagnolis() -> None:
    """The example in RFC 3720: 32 zero bytes give 8a9136aa; here after an empty key and an empty type."""
    assert unplaced("", "", bytes(30)) == 0x8A9136AA
