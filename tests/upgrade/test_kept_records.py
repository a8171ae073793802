"""The current code replays every released version's records into the state that is stored beside them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip932.ids import TopicPartition
from shard_runtime.record_log.redis import keys
from sharegroups import AcknowledgeType, Admin, Producer, ShareConsumer
from tests.support.node import TERMINATED, StartedProcess, up_words
from tests.support.stores import Server
from tests.upgrade.kept import Dump, kept_versions, read_dump, read_state
from tests.upgrade.kinds import MODULES, ROOT, declared_kinds, fields_of, key_kind, kinds_of, released_fields
from tests.upgrade.record import SETTINGS
from tests.upgrade.replayed import state_of

HOW = "python -m tests.upgrade.record VERSION keeps what the present code writes; see docs/howto/upgrade.md"
#: Kinds that no recorded version has written, and why; the first version that writes one must also record it.
NOT_WRITTEN = {
    "GroupRecord.deleted_group_epoch",  # GC-93: the recorded versions cannot delete groups
    "GroupRecord.served_time",  # GC-46: nor do they record the ages of groups
    "MetadataChange.scram_credential_set",  # CM-189: nor do they have users
    "MetadataChange.scram_credential_removed",
    "MetadataChange.quota_set",  # CM-191: nor quotas
    "MetadataChange.quota_removed",
}
#: Fields of a released protocol that this version never sets.
NOT_SET = {
    "0.1.0": {
        "record_version": "0, the first of its kind",
        "ShareGroupCurrentMemberAssignment.state": "0 for share members (GC-60)",
        "ClaimEntry.reason": "claims give none",
        "GroupRecord.deleted_group_epoch": "groups cannot be deleted",
        "DeletedGroupEpoch.": "groups cannot be deleted",
        "BatchEntry.transactional_id": "transactions are not served",
        "BatchEntry.transaction_timeout_ms": "transactions are not served",
        "ProducersSnapshot.open_transactions": "transactions are not served",
        "ProducersSnapshot.aborted_transactions": "transactions are not served",
        "ProducersSnapshot.OpenTransaction.": "transactions are not served",
        "ProducersSnapshot.AbortedTransaction.": "transactions are not served",
    }
}


#: Makes the member that existed when the records were made expire soon.
SERVED = {**SETTINGS, "group.share.session.timeout.ms": "3000", "group.share.heartbeat.interval.ms": "500"}


def excused(field: str, version: str) -> bool:
    return any(field.startswith(name) or field.endswith(f".{name}") for name in NOT_SET.get(version, {}))


@pytest.mark.rule("CM-16", "GC-64", "SC-51", "CM-20", "CM-43")
@pytest.mark.parametrize("version", kept_versions())
def test_old_records_replay_into_the_state_they_were_written_for(version: str) -> None:
    assert asyncio.run(state_of(read_dump(version))) == read_state(version)


@pytest.mark.rule("CM-16")
def test_every_kind_of_record_is_kept_by_some_version() -> None:
    kept = set().union(*(kinds_of(read_dump(version)) for version in kept_versions()))
    missing = declared_kinds() - kept - NOT_WRITTEN
    assert not missing, f"nothing is kept of {sorted(missing)}: {HOW}"
    assert not kept & NOT_WRITTEN, f"{sorted(kept & NOT_WRITTEN)} are written now: take them out of NOT_WRITTEN"


@pytest.mark.rule("CM-16")
@pytest.mark.parametrize("version", kept_versions())
def test_every_field_of_a_released_record_is_kept_with_a_value(version: str) -> None:
    missing = released_fields(version) - fields_of(read_dump(version))
    assert sorted(field for field in missing if not excused(field, version)) == [], HOW
    for name in NOT_SET.get(version, {}):
        assert any(field.startswith(name) or field.endswith(f".{name}") for field in missing), f"{name} is set"


@pytest.mark.rule("CM-16")
def test_every_file_of_records_and_every_key_is_checked() -> None:
    """A new file or key must be added to `kinds.py`; the tests above then require an entry of that kind."""
    files = {
        f"kip932/records/v1/{path.name}" for path in (ROOT / "protos" / "kip932" / "records" / "v1").glob("*.proto")
    }
    assert {module.DESCRIPTOR.name for module in MODULES} == files
    named = {text for name, text in vars(keys).items() if name.isupper() and isinstance(text, str)}
    # A stream, a channel, an operator's decisions (which no process writes), a sentence, and a key prefix.
    others = {keys.META_LOG, keys.WAKE_CHANNEL, keys.META_SKIP, keys.INCOMPLETE_RESTORE, keys.TRANSACTION_PREFIX}
    for key in named - others:
        assert key_kind(key) in declared_kinds()


def test_a_kind_that_is_not_kept_is_found() -> None:
    """The tests above fail if a kind has no entry; this is shown for one kind in each stream."""
    dump = read_dump("0.1.0")
    for kind in ("U", "M", "P", "12", "C", "N"):
        less = Dump(
            {key: [entry for entry in entries if entry.kind != kind] for key, entries in dump.streams.items()},
            dump.hashes,
            dump.strings,
        )
        assert declared_kinds() - kinds_of(less) > declared_kinds() - kinds_of(dump), kind


def test_a_record_that_changed_its_meaning_is_found() -> None:
    """One changed byte of one record changes the state."""
    dump = read_dump("0.1.0")
    (stream,) = [key for key in dump.streams if key.startswith("{sgs:900}")]
    entries = dump.streams[stream]
    (at,) = [index for index, entry in enumerate(entries) if entry.kind == "U"]
    record = entries[at].record
    entries[at] = entries[at]._replace(record=record.replace(b"\x18\x69", b"\x18\x6a", 1))  # start offset 105 → 106
    assert entries[at].record != record
    assert asyncio.run(state_of(dump)) != read_state("0.1.0")


# ---- the same, served


@pytest.fixture(params=kept_versions())
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, StartedProcess]]:
    """Yields (version, bootstrap, process): a cluster of the current code on the store of a released version."""
    dump = read_dump(request.param)
    store = Server()
    try:
        asyncio.run(_restore(store, dump))
        words = up_words(tmp_path / "data", SERVED, "--store", f"unix://{store.folder}/s")
        node = StartedProcess(words, tmp_path)
        try:
            yield request.param, json.loads(node.first_line())["bootstrap"], node
        finally:
            assert node.stop() == TERMINATED
    finally:
        store.stop()


async def _restore(store: Server, dump: Dump) -> None:
    await store.start()
    for reply in await store.run(*dump.commands()):
        assert not isinstance(reply, Exception), reply


@pytest.mark.rule("CM-16", "CM-40", "SC-51", "GC-64")
def test_a_cluster_goes_on_where_an_old_version_stopped(served: tuple[str, str, StartedProcess]) -> None:
    """Topics, configs and groups are there; accepted records are never delivered again, the others are delivered
    once."""
    version, bootstrap, node = served
    state = read_state(version)
    settings: dict[str, object] = {"bootstrap.servers": bootstrap}
    topics = state["metadata"]["topics"]
    with Admin(settings) as admin:
        assert set(admin.list_topics()) == set(topics)
        offsets = admin.list_share_group_offsets({"billing": None})["billing"]
        assert isinstance(offsets, dict)
        for index in (0, 1):
            found = offsets[TopicPartition("orders", index)]
            share = state["share-partitions"][f"billing:{topics['orders']['id']}:{index}"]
            assert found is not None
            assert found.start_offset == share["start offset"]
    left = _left(state)
    with Producer(settings) as producer:
        producer.produce("orders", b"new-0", partition=0)
        producer.produce("orders", b"new-1", partition=1)
    left |= {"new-0", "new-1"}
    got: dict[str, int] = {}
    group: dict[str, object] = {"group.id": "billing", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({**settings, **group}) as consumer:
        consumer.subscribe(["orders"])
        for _ in range(60):
            for message in consumer.poll(1.0):
                value = (message.value() or b"").decode()
                got[value] = got.get(value, 0) + 1
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            consumer.commit_sync(30)
            if len(got) >= len(left):
                break
        assert len(consumer.poll(0.5)) == 0
    assert got == dict.fromkeys(left, 1)
    assert "Traceback" not in node.errors


def _left(state: dict[str, Any]) -> set[str]:
    """Return the values in the topic orders that the group billing has not finished, from the recorded state alone."""
    found: set[str] = set()
    orders = state["metadata"]["topics"]["orders"]["id"]
    for index in (0, 1):
        share = state["share-partitions"][f"billing:{orders}:{index}"]
        finished = {
            offset for first, last, kind, _ in share["batches"] if kind in {2, 4} for offset in range(first, last + 1)
        }
        for offset, _, value, *_ in state["partitions"][f"{orders}:{index}"]["records"]:
            if offset >= share["start offset"] and offset not in finished:
                found.add(value)
    return found
