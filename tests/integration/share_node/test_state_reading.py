"""`state dump` of a whole cluster, while it runs and later from its data directory, which it leaves unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from kip932.ids import topic_id_text
from shard_runtime.record_log.protocol import Entry
from share_node.commands import state
from share_node.state.reading import as_kafka_has_it
from sharegroups import Admin, Producer, ShareConsumer
from tests.support.node import TERMINATED, StartedProcess, up_words

DUMP = ("dump", "--kind", "sgs", "--formatter", "kafka")


class Ended(NamedTuple):
    """A cluster that has ended: its data, its topic's id, and the dump made while it ran."""

    data: Path
    topic_id: str
    running: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("up")
    data = folder / "data"
    node = StartedProcess(up_words(data), folder)
    try:
        bootstrap = json.loads(node.first_line())["bootstrap"]
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics(["t"])
            topic_id = topic_id_text(admin.list_topics(["t"])["t"].topic_id)
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(5):
                producer.produce("t", str(number))
        with ShareConsumer(bootstrap_servers=bootstrap, group_id="g") as consumer:
            consumer.subscribe(["t"])
            seen = 0
            while seen < 5:
                messages = consumer.poll(30)
                assert messages
                seen += len(messages)
            consumer.commit_sync()
        running = CliRunner().invoke(state, [*DUMP, "--data", str(data)])
        assert (running.exit_code, running.stderr) == (0, "")
    finally:
        assert node.stop() == TERMINATED
    return Ended(data, topic_id, running.stdout)


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.rule("CT-96")
def test_all_shards_of_a_running_cluster_are_shown_one_record_a_line(ended: Ended) -> None:
    found = documents(ended.running)
    assert {json.dumps(each["key"]["data"]) for each in found} == {
        json.dumps({"groupId": "g", "topicId": ended.topic_id, "partition": 0})
    }
    assert found[0]["key"]["type"] == 0
    assert found[0]["value"]["data"]["startOffset"] == -1
    assert "deliveryCompleteCount" not in found[0]["value"]["data"]
    assert {each["key"]["type"] for each in found} == {0, 1}
    assert found[-1]["value"]["data"]["startOffset"] + found[-1]["value"]["data"]["deliveryCompleteCount"] == 5


@pytest.mark.rule("CT-96")
def test_a_data_directory_whose_store_does_not_run_is_read_from_a_copy(ended: Ended) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        found = [path for path in ended.data.rglob("*") if path.is_file() and path.name != "store.lock"]
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}

    before = files()
    stopped = CliRunner().invoke(state, [*DUMP, "--data", str(ended.data)])
    assert (stopped.exit_code, stopped.stderr) == (0, "")
    assert stopped.stdout.startswith(ended.running), "and what the end of the cluster added"
    assert files() == before
    one = CliRunner().invoke(state, ["dump", "--kind", "gc", "--shard", "7", "--data", str(ended.data)])
    assert json.loads(one.stdout.splitlines()[0])["type"] == "C"


@pytest.mark.rule("CT-96")
def test_what_is_left_out_is_reported_and_ends_with_1(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(entry: Entry) -> dict[str, object] | None:
        if entry.kind == "U":
            raise ValueError("its checksum differs")
        return as_kafka_has_it(entry)

    monkeypatch.setattr("share_node.state.reading.as_kafka_has_it", damaged)
    result = CliRunner().invoke(state, [*DUMP, "--data", str(ended.data)])
    assert result.exit_code == 1
    assert {each["key"]["type"] for each in documents(result.stdout)} == {0}
    assert " is left out: its checksum differs. `--formatter entries` shows it.\n" in result.stderr


@pytest.mark.rule("CT-96")
def test_a_copy_that_has_no_room_is_not_begun(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    result = CliRunner().invoke(state, [*DUMP, "--data", str(ended.data)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "where 10 are free. Make room, set TMPDIR to another place" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dump", "--kind", "sgs"), "give either --store URL or --data DIR"),
        (("dump", "--kind", "gc", "--formatter", "kafka"), "give --kind sgs"),
        (("dump", "--kind", "tp"), "--kind tp needs --shard TOPIC_ID:PARTITION"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(state, words)
    assert (result.exit_code != 0, result.stdout) == (True, "")
    assert said in result.stderr


def test_a_directory_without_a_store_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(state, [*DUMP, "--data", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{tmp_path} holds no data of `sharegroups up`" in result.stderr
