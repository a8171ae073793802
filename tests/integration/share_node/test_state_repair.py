"""`state repair` on a store with damaged entries: what it shows, what it asks, which entries it marks as settled, and
what it leaves unchanged."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core.records import CURRENT, MEMBER, TARGET, CurrentAssignment, MemberMetadata, Tombstone
from kip932.ids import SharePartitionKey
from shard_runtime.record_log.protocol import ShardId, ShardKind
from share_coordinator.codec import ShareStateCodec
from share_node.commands import state
from tests.support.damaged_logs import StoredLog
from tests.support.share_state import KEY, TOPIC, Driver, initialize, write
from tests.support.stores import Server

STATE = ShardId(ShardKind.SHARE_STATE, "3")
GROUPS = ShardId(ShardKind.GROUP, "4")


class Store:
    """A Valkey that holds logs with some damaged entries."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.run(("SET", "{meta}:cluster", "c"))

    def run(self, *commands: Any) -> list[Any]:
        return asyncio.run(self.server.run(*commands))

    def put(self, log: StoredLog, *damaged: int) -> None:
        """Store a log; flip a bit in the last byte of the record of the entries with these numbers."""
        for at, (raw_id, fields) in enumerate(log.raw):
            bad = [*fields[:3], fields[3][:-1] + bytes([fields[3][-1] ^ 1]), *fields[4:]] if at in damaged else fields
            self.run(("XADD", log.stream, raw_id.decode(), *bad))

    def repair(self, *words: str, command: str = "repair") -> Result:
        return CliRunner().invoke(state, [command, "--store", f"redis://127.0.0.1:{self.server.port}", *words])

    def notes(self, shard: ShardId) -> dict[str, dict[str, Any]]:
        (found,) = self.run(("HGETALL", shard.skip_key))
        words = list(found.items()) if isinstance(found, dict) else list(zip(found[::2], found[1::2], strict=True))
        return {name.decode(): json.loads(note) for name, note in words}


@pytest.fixture
def store() -> Iterator[Store]:
    server = Server()
    asyncio.run(server.start())
    yield Store(server)
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


def state_log() -> StoredLog:
    """Return a log with a claim, a snapshot for each of two keys, and two updates of the first key."""
    driver, log = Driver(), StoredLog(STATE, ShareStateCodec())
    other = SharePartitionKey("other", TOPIC, 0)
    driver.run(initialize(5, 10))
    driver.run(initialize(5, 10, key=other))
    driver.run(write((10, 15, 2, 1), start=10))
    driver.run(write((16, 19, 2, 1), start=10))
    log.claim()
    log.append(driver.log)
    log.claim()
    return log


@pytest.mark.rule("CM-115")
def test_it_shows_what_is_known_of_each_entry_and_what_each_choice_loses(store: Store) -> None:
    store.put(state_log(), 0, 3)  # a damaged claim has no effect
    reported = store.repair("--output", "json")
    assert reported.exit_code == 1, reported.output
    (found,) = [json.loads(line) for line in reported.stdout.splitlines()]
    assert (found["stream"], found["entry"], found["key"]) == (STATE.streams[0], "10-3", KEY.text)
    assert found["found"].startswith("is damaged: its checksum is")
    assert (found["last_whole_state"], found["later_updates"]) == ("10-1", 1)
    assert found["without_it"] == {"start_offset": 10, "state_epoch": 5, "leader_epoch": 0, "state_batches": 1}
    assert (found["before"]["entry"], found["after"]["entry"]) == ("10-2", "10-4")
    assert found["before"]["appended"] == "1970-01-01T00:00:01.000+00:00"
    assert set(found["choices"]) == {"skip", "drop"}
    assert reported.stderr == "1 damaged entries wait for a decision.\n"  # without log lines of the replay
    text = store.repair().stdout
    assert f"entry 10-3 of {STATE.streams[0]} is damaged" in text
    assert "--choose skip: acknowledgements in the entry are forgotten" in text
    assert not store.notes(STATE)


@pytest.mark.rule("CM-115")
def test_an_entry_without_a_whole_state_before_it_says_so(store: Store) -> None:
    store.put(state_log(), 1)
    (found,) = [json.loads(line) for line in store.repair("--output", "json").stdout.splitlines()]
    assert (found["last_whole_state"], found["later_updates"]) == (None, 2)
    assert found["choices"]["skip"].startswith("there is no whole state before the entry")


@pytest.mark.rule("CM-114", "CM-115")
def test_it_settles_only_what_a_person_agreed_to_and_notes_who(store: Store) -> None:
    store.put(state_log(), 3)
    for words, said in (
        (("--dry-run",), "Would drop entry 10-3"),
        ((), "give --execute where no person can be asked"),
    ):
        refused = store.repair("--choose", "drop", *words)
        assert (refused.exit_code, said in refused.stderr) == (1, True), refused.output
        assert not store.notes(STATE)
    other = store.repair("--choose", "drop", "--execute", "--kind", "gc")
    assert (other.exit_code, other.stdout, store.notes(STATE)) == (0, "", {}), "no entry of that kind waits for repair"
    done = store.repair("--choose", "drop", "--execute", "--by", "kim", "--why", "ticket 7")
    assert done.exit_code == 0, done.output
    assert "by kim. Running nodes apply it within 5 s" in done.stderr
    note = store.notes(STATE)["10-3"]
    assert (note["choice"], note["by"], note["why"], note["at_ms"] > 0) == ("drop", "kim", "ticket 7", True)
    assert store.repair().exit_code == 0
    checked = store.repair(command="check")
    settled = next(json.loads(line) for line in checked.stdout.splitlines() if "10-3" in line)
    assert (settled["skipped"], settled["settled"]["by"]) == (True, "kim")


@pytest.mark.rule("CM-115")
def test_of_a_group_what_does_not_fit_without_the_entry_is_settled_with_it(store: Store) -> None:
    log = StoredLog(GROUPS, GroupLogCodec())
    log.claim()
    log.append(
        [
            MemberMetadata("g", "m", None, "c", "h", ("t",)),
            CurrentAssignment("g", "m", 1, 0, 0, {}),
            Tombstone(CURRENT, "g", "m"),
            Tombstone(TARGET, "g", "m"),
            Tombstone(MEMBER, "g", "m"),
        ]
    )
    log.claim()
    store.put(log, 3)
    reported = store.repair("--choose", "drop", "--execute")
    assert (reported.exit_code, store.notes(GROUPS)) == (1, {})
    assert "choose skip for this one" in reported.stderr
    done = store.repair("--choose", "skip", "--execute", "--kind", "gc")
    assert done.exit_code == 0, done.output
    assert sorted(store.notes(GROUPS)) == ["10-3", "10-5"], "without the entry, one behind it does not fit"


@pytest.mark.rule("CM-115")
def test_an_entry_without_a_key_and_wrong_words_are_reported(store: Store) -> None:
    log = state_log()
    del log.raw[2]
    store.put(log)
    (found,) = [json.loads(line) for line in store.repair("--output", "json").stdout.splitlines()]
    assert (found["entry"], found["key"], set(found["choices"])) == ("10-3", "unknown", {"skip"})
    wrong = store.repair("--kind", "sgs", "--shard", "3", "--entry", "10-9")
    assert (wrong.exit_code, "no damaged entry 10-9 of {sgs:3} waits" in wrong.stderr) == (1, True)
    for words in (["--shard", "3"], ["--entry", "10-3"], ["--execute"], ["--dry-run"]):
        assert store.repair(*words).exit_code == 2
