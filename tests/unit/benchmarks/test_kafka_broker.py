"""A broker's settings, and what Java's tools print. Nothing is started here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kafka_broker import (
    Installation,
    cluster_id,
    consumed_per_s,
    consumer_words,
    produced_per_s,
    producer_words,
    properties,
)
from benchmarks.processes import BenchmarkError

_PROGRESS = "35223 records sent, 7012.3 records/sec (0.67 MB/sec), 2305.0 ms avg latency, 2967.0 ms max latency."
_WHOLE = (
    "{} records sent, {} records/sec (1.83 MB/sec), 4281.76 ms avg latency, 5900.00 ms max latency, 4559 ms 50th, "
    "5738 ms 95th, 5880 ms 99th, 5900 ms 99.9th."
)
_HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"


def _row(began: str, ended: str, records: int, end: str) -> str:
    return f"2026-11-30 20:33:{began}, 2026-11-30 20:33:{ended}, 0.1, 0.1, 1.0, {records}, {end}"


def _step(began: str, ended: str, records: int) -> str:
    return _row(began, ended, records, "100 for share consumer 1")


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.kafka_broker.find_program", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("java")
def test_the_jars_may_be_in_any_folder_of_the_installation(tmp_path: Path) -> None:
    for name in ("libs", "tools", "docs"):
        (tmp_path / name).mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.4.0.jar").touch()
    (tmp_path / "tools" / "kafka-tools-4.4.0.jar").touch()
    words = Installation(tmp_path).words("kafka.Kafka", "broker.properties", heap=("-Xmx1g",))
    path = f"{tmp_path.resolve()}/libs/*:{tmp_path.resolve()}/tools/*"
    assert words == ["java", "-Xmx1g", "-cp", path, "kafka.Kafka", "broker.properties"]


@pytest.mark.usefixtures("java")
def test_a_folder_without_jars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"its folders hold no kafka\*\.jar"):
        Installation(tmp_path)


def test_a_machine_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka-clients-4.4.0.jar").touch()
    monkeypatch.setattr("benchmarks.kafka_broker.find_program", lambda name: None)
    with pytest.raises(BenchmarkError, match="needs the program java"):
        Installation(tmp_path)


def test_a_broker_is_alone_on_loopback(tmp_path: Path) -> None:
    found = dict(line.split("=", 1) for line in properties(9092, 9093, tmp_path).splitlines())
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["log.dirs"] == str(tmp_path)
    assert {value for name, value in found.items() if "replication.factor" in name or "min.isr" in name} == {"1"}


def test_a_cluster_has_an_id_of_16_bytes_that_is_not_taken_for_an_option() -> None:
    found = {cluster_id() for _ in range(20)}
    assert len(found) == 20
    assert {(len(each), each[0]) for each in found} == {(22, "K")}


def test_javas_producer_counts_after_half_as_many_records_to_warm_up() -> None:
    words = producer_words("127.0.0.1:9092", "t", 1000, 100)
    assert words[words.index("--num-records") + 1] == "1500"
    assert words[words.index("--warmup-records") + 1] == "500"
    assert consumer_words("127.0.0.1:9092", "t", "g", 7)[7:9] == ("--num-records", "7")


def test_the_rate_of_javas_producer_is_that_of_its_last_summary() -> None:
    assert produced_per_s("\n".join([_PROGRESS, _WHOLE.format(300, 19177.5)])) == 19177.5
    warm = _WHOLE.format(200, "70000.0").replace("records", "steady state records", 1)
    assert produced_per_s("\n".join([_WHOLE.format(300, "19177.5"), warm])) == 70000
    with pytest.raises(BenchmarkError, match="reported no rate"):
        produced_per_s(_PROGRESS)


def test_the_rate_of_javas_consumer_leaves_out_the_time_until_it_has_joined() -> None:
    rows = [
        _HEADER, _step("09:000", "17:000", 0), _step("17:000", "17:500", 1_000), _step("17:500", "18:000", 9_000),
        _row("09:000", "18:500", 21_000, "9500"),
    ]  # fmt: skip
    assert consumed_per_s("\n".join(rows)) == 20_000
    with pytest.raises(BenchmarkError, match="reported no rate"):
        consumed_per_s(_HEADER)
    with pytest.raises(BenchmarkError, match="give it more records"):
        consumed_per_s("\n".join([_step("17:000", "17:500", 1_000), _row("09:000", "17:500", 1_000, "500")]))
