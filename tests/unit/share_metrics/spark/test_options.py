"""Options as Spark passes them."""

from __future__ import annotations

import os
import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

from share_metrics.reader import EntryId, Kind, ReadOptions
from share_metrics.spark.options import read_options
from share_metrics.spark.source import RedisStreams

MIN = {"url": "redis://h:1", "kind": "group"}


@pytest.mark.rule("PM-68", "PM-73")
@pytest.mark.parametrize("name", ["maxRowsPerTrigger", "maxrowspertrigger", "MAXROWSPERTRIGGER"])
def test_names_are_read_whatever_their_case(name: str) -> None:
    reported = read_options(CaseInsensitiveDict({**MIN, name: "7", "pageCount": "3"}))
    assert (reported.max_rows_per_trigger, reported.page_count) == (7, 3)
    source = RedisStreams(CaseInsensitiveDict({**MIN, name: "7"}))
    assert source.streamReader(source.schema()).getDefaultReadLimit() == ReadMaxRows(7)


@pytest.mark.rule("PM-5")
def test_defaults_are_those_of_the_specification() -> None:
    reported = read_options(CaseInsensitiveDict(MIN))
    assert (reported.split_entries, reported.page_count, reported.max_rows_per_trigger) == (250_000, 5_000, 300_000)
    assert (reported.kind, reported.fail_on_data_loss, reported.bad_records) == (Kind.GROUP, False, "quarantine")
    assert reported.num_partitions == 2 * (os.cpu_count() or 1)
    assert (reported.fields, reported.read_from, reported.reader_name) == ("all", "primary", "")
    assert (reported.shards, reported.password_env, reported.starting_ids, reported.ending_ids) == (
        None,
        "",
        "earliest",
        "latest",
    )


@pytest.mark.rule("PM-5")
def test_what_an_option_says_reaches_the_reader() -> None:
    more = {"shards": "7", "numPartitions": "3", "splitEntries": "9"}
    reported = read_options({**MIN, **more, "failOnDataLoss": "true", "badRecords": "fail", "pageCount": "4"})
    assert (reported.shards, reported.num_partitions, reported.split_entries) == (7, 3, 9)
    assert reported.read_options == ReadOptions(4, True, fail_on_bad_records=True)
    assert read_options(MIN).read_options == ReadOptions(5_000, False, fail_on_bad_records=False)


@pytest.mark.rule("PM-5")
def test_options_hold_the_name_of_the_passwords_variable_and_not_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDS_IT", "secret")
    reported = read_options({**MIN, "passwordEnv": "HOLDS_IT"})
    assert reported.password_env == "HOLDS_IT"
    assert b"secret" not in pickle.dumps(reported)


@pytest.mark.rule("PM-5", "PM-78")
def test_light_fields_are_a_readers_option() -> None:
    assert read_options({**MIN, "kind": "share_state", "fields": "light"}).read_options.light
    assert not read_options({**MIN, "kind": "share_state"}).read_options.light


@pytest.mark.rule("PM-5")
def test_a_replica_is_read_only_where_one_is_asked_for() -> None:
    for url in ("redis+cluster://h:1", "redis+sentinel://h:1/main"):
        with read_options({**MIN, "url": url}).store() as store:
            assert store.primary is store
        with read_options({**MIN, "url": url, "readFrom": "replica"}).store() as store:
            assert store.primary is not store
    with read_options({**MIN, "readFrom": "replica"}).store() as store:
        assert store.primary is store  # the URL of one server names exactly that server


@pytest.mark.rule("PM-5")
def test_ids_to_start_and_end_with_are_read() -> None:
    reported = read_options({**MIN, "startingIds": '{"s": "1-2"}', "endingIds": '{"s": "3-4"}'})
    assert (reported.starts, reported.ends) == ({"s": EntryId(1, 2)}, {"s": EntryId(3, 4)})
    assert read_options({**MIN, "startingIds": "latest"}).starts == {}


@pytest.mark.rule("PM-76")
def test_options_travel_to_workers() -> None:
    reported = read_options(MIN)
    assert pickle.loads(pickle.dumps(reported)) == reported


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("url", "", "option url is missing"),
        ("kind", "metadata", "option kind is 'metadata'; expected one of share_state, group, log_meta"),
        ("pageCount", "0", "option pageCount is '0'"),
        ("numPartitions", "two", "option numPartitions is 'two'"),
        ("failOnDataLoss", "maybe", "option failOnDataLoss is 'maybe'"),
        ("badRecords", "skip", "option badRecords is 'skip'"),
        ("fields", "few", "option fields is 'few'; expected one of all, light"),
        ("fields", "light", "option fields is 'light', which is for kind share_state, not group"),
        ("readFrom", "anywhere", "option readFrom is 'anywhere'; expected one of primary, replica"),
        ("startingIds", "{", "are not JSON"),
    ],
)
def test_a_mistake_is_reported_by_the_options_name(option: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_options({**MIN, option: value})
