"""The positions that a reader publishes to owners: which, when, and what happens when the store refuses."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from share_metrics.commands import metrics
from share_metrics.ingest.job import reader_name
from share_metrics.ingest.writing import Source
from share_metrics.reader import EntryId, Kind, Position, StoreReplyError, StoreUnreachableError
from share_metrics.reader.publishing import Publisher
from share_metrics.spark.options import read_options

S0, S1 = "{sgs:0}:log", "{gc:1}:log"
MIN = {"url": "redis://h:1", "kind": "group"}


class HearingStore:
    """Records what is published to it; `primary` is the store itself."""

    def __init__(self) -> None:
        self.reported: list[dict[str, str]] = []
        self.error: Exception | None = None

    @property
    def primary(self) -> HearingStore:
        return self

    def pipeline(self, commands: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        if self.error is not None:
            raise self.error
        for key, words in commands:
            assert (words[0], words[2], words[3], words[4]) == ("EVAL", 1, key, "r")
        self.reported.append({key: str(words[5]) for key, words in commands})
        return [1] * len(commands)


class World:
    def __init__(self) -> None:
        self.store = HearingStore()
        self.now = 0.0
        self.publisher = Publisher("r", lambda: self.now)

    def publish(self, **seqs: int) -> None:
        names = {"s0": S0, "s1": S1}
        at = {names[name]: Position(EntryId(1, seq) if seq else EntryId(0, 0), 9) for name, seq in seqs.items()}
        self.publisher.publish(self.store, at)  # type: ignore[arg-type]  # it has all that a publisher calls


@pytest.mark.rule("PM-12", "SR-29")
def test_positions_are_noted_when_they_move_in_one_trip() -> None:
    world = World()
    world.publish(s0=4, s1=5)
    world.publish(s0=4, s1=5)
    world.publish(s0=6, s1=5)
    assert world.store.reported == [{"{sgs:0}:readers": "1-4", "{gc:1}:readers": "1-5"}, {"{sgs:0}:readers": "1-6"}]


@pytest.mark.rule("PM-12")
def test_an_older_checkpoint_is_noted_too() -> None:
    world = World()
    world.publish(s0=6)
    world.publish(s0=4)
    assert world.store.reported[-1] == {"{sgs:0}:readers": "1-4"}


@pytest.mark.rule("PM-12", "PM-6")
def test_of_what_nothing_was_read_nothing_is_noted() -> None:
    world = World()
    world.publish(s0=0)
    assert world.store.reported == []


@pytest.mark.rule("PM-12", "SR-29")
def test_an_idle_reader_says_each_minute_that_it_lives() -> None:
    world = World()
    world.publish(s0=4)
    world.now = 59.0
    world.publish(s0=4)
    assert len(world.store.reported) == 1
    world.now = 60.0
    world.publish(s0=4)
    assert world.store.reported == [{"{sgs:0}:readers": "1-4"}] * 2


@pytest.mark.rule("PM-12")
@pytest.mark.parametrize("error", [StoreReplyError("NOPERM no"), StoreUnreachableError("gone")])
def test_a_store_that_refuses_is_reported_once_and_asked_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World()
    world.store.error = error
    world.publish(s0=4)
    world.publish(s0=5)
    assert [record.getMessage().count(str(error)) for record in caplog.records] == [1]
    assert "{sgs:0}:readers" in caplog.text
    assert "Allow its user EVAL, TIME, HSCAN, HSET, HDEL and PEXPIRE on keys *:readers" in caplog.text
    world.store.error = None
    world.publish(s0=5)
    assert world.store.reported == [{"{sgs:0}:readers": "1-5"}]
    world.store.error = error
    world.publish(s0=6)
    assert len(caplog.records) == 2


@pytest.mark.rule("PM-76")
def test_a_publisher_travels_with_what_it_noted() -> None:
    publisher = Publisher("r")
    store = HearingStore()
    at = {S0: Position(EntryId(1, 4), 5)}
    publisher.publish(store, at)  # type: ignore[arg-type]
    pickle.loads(pickle.dumps(publisher)).publish(store, at)
    assert len(store.reported) == 1


@pytest.mark.rule("PM-5", "PM-12")
def test_a_query_has_no_name_unless_it_is_given_one_and_a_topics_log_hears_nothing() -> None:
    assert read_options(MIN).publisher() is None
    assert read_options({**MIN, "readerName": "a.b-c_1"}).publisher() is not None
    assert read_options({**MIN, "kind": "log_meta", "readerName": "r"}).publisher() is None


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize("name", ["a b", "x" * 65, "ü", "a\n", "a:b"])
def test_a_name_is_plain_words(name: str) -> None:
    with pytest.raises(ValueError, match="reader name"):
        read_options({**MIN, "readerName": name})


@pytest.mark.rule("PM-39", "PM-12")
def test_the_command_refuses_a_name_that_none_can_have(tmp_path: Path) -> None:
    command = ["ingest", "--store", "redis://127.0.0.1:1", "--data", str(tmp_path), "--reader-name", "a b"]
    result = CliRunner().invoke(metrics, command)
    assert (result.exit_code, "reader name 'a b'" in result.output) == (2, True)


@pytest.mark.rule("PM-12", "PM-6")
def test_a_source_of_ones_own_has_no_name() -> None:
    assert read_options(Source("redis://h:1").options(Kind.GROUP)).publisher() is None
    assert read_options(Source("redis://h:1", reader_name="").options(Kind.GROUP)).publisher() is None
    assert read_options(Source("redis://h:1", reader_name="r").options(Kind.GROUP)).publisher() is not None


@pytest.mark.rule("PM-12")
def test_a_directory_keeps_its_name_and_shares_it_with_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    name = reader_name(tmp_path / "a")
    assert reader_name(tmp_path / "a") == name
    assert reader_name(tmp_path / "b") != name
    assert Publisher(name) is not None
