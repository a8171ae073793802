"""The comparison of what Kafka's tools print at a broker and at a node: what counts as the same, and what is meant."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.packaging.test_kafka_listener_page import clauses
from tools.kafka_listener_page import kafka_listener_page
from tools.kafka_transcripts.comparing import Difference, Hunk, hunks, named, normal
from tools.kafka_transcripts.differences import DIFFERENCES
from tools.kafka_transcripts.running import CLASSES, Done, KafkaTools, missing
from tools.kafka_transcripts.steps import END, MARK, STEPS, Step

_PLAIN = Step("topics", f"--describe --topic ta{MARK}")


def lines(text: str, step: Step = _PLAIN) -> list[str]:
    return normal(step, text, address="127.0.0.1:9092", mark="-1a2b")


def test_a_run_has_names_of_its_own_which_its_transcript_leaves_out() -> None:
    assert named(_PLAIN, "-1a2b") == "--describe --topic ta-1a2b"
    assert _PLAIN.command == "topics --describe --topic ta"
    assert lines("Topic: ta-1a2b at 127.0.0.1:9092") == ["Topic: ta at ADDRESS"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("TopicId: kCShwy5ARHC2ojc2by5MQA x", "TopicId: uQxIcguqTIKj9LzNmNVDjA x"),
        ("10:11:12.123 [main] ERROR it failed", "20:21:22.987 [thread 2] ERROR it failed"),
        ("[2026-11-30 16:37:20:716] done", "2026-11-30 16:37:22:350 done"),
        ('{"timestamp":1796056644806,"name":"x"}', '{"timestamp":"1796056645554","name":"x"}'),
        ("CreateTime:1796056644806\tx", "CreateTime:1\tx"),
        ("failed\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n\t... 6 more", "failed"),
        ("trailing   ", "trailing"),
        ("SLF4J: there is no logger\nfailed", "failed"),
        ('"offsets":[10,2,1]', '"offsets":[1,2,10]'),
        ("share.version  Epoch: 0", "share.version  Epoch: 1822"),
        ("Caused by: a.b.InvalidConfigException: not a number", "Caused by: a.b.InvalidConfigException: 'x' is wrong"),
        (
            "a.ExecutionException: b.TopicExistsException: it is there",
            "a.ExecutionException: b.TopicExistsException: x",
        ),
        ("Valid states are: Empty, Stable, Dead", "Valid states are: Dead, Stable, Empty"),
        ("ta  Error: nothing to delete", "ta  Error: there is no offset"),
    ],
)
def test_times_ids_and_stack_traces_do_not_count(one: str, other: str) -> None:
    assert lines(one) == lines(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("START-OFFSET 5", "START-OFFSET 6"),
        ("Valid states are: Empty, Stable, Dead", "Valid states are: Stable, Empty"),
        ("segment.ms=1000", "segment.ms=2000"),
        ("Error: a.AException: x", "Error: a.BException: x"),
    ],
)
def test_anything_else_counts(one: str, other: str) -> None:
    assert lines(one) != lines(other)


def test_figures_of_perf_tools_do_not_count_and_numbers_of_records_do() -> None:
    perf = Step("producer-perf-test", "")
    slow = "2000 records sent, 15117.157974 records/sec (1.44 MB/sec), 224.27 ms avg latency, 345 ms 99.9th."
    fast = "2000 records sent, 99.5 records/sec (0.01 MB/sec), 1.00 ms avg latency, 2 ms 99.9th."
    assert lines(slow, perf) == lines(fast, perf) != lines(fast.replace("2000 rec", "1999 rec"), perf)


def test_lines_without_order_and_lines_of_others() -> None:
    assert lines("b\na", Step("acls", "", unordered=True)) == ["a", "b"]
    assert lines("other\nta-1a2b\n__kept\n", Step("topics", "--list", own=True)) == ["ta", "__kept"]


def test_a_difference_is_explained_by_command_and_both_sides() -> None:
    (hunk,) = hunks(_PLAIN, ["same", "Replicas: 1,2", "end"], ["same", "Replicas: 1", "end"])
    assert hunk == Hunk("topics --describe --topic ta", ("Replicas: 1,2",), ("Replicas: 1",))
    meant = Difference("KL-1", ("topics",), "topics --describe .*", "Replicas: 1,2", r"Replicas: \d", "text")
    assert meant.explains(hunk)
    others = meant._replace(command="topics --list"), meant._replace(broker="Replicas: 1"), meant._replace(ours="")
    assert [each for each in others if each.explains(hunk)] == []
    assert list(hunks(_PLAIN, ["same"], ["same"])) == []


def test_the_commands_are_of_known_tools_and_use_names_of_the_run() -> None:
    kept = {step.keep for step in STEPS if step.keep}
    ended = {step.words for step in STEPS if step.tool == END}
    assert kept == ended
    option = re.compile(r"--(?:topic|group|group-id|entity-name) (\S+)")
    for step in STEPS:
        assert step.tool in {*CLASSES, END}
        assert shlex.split(step.words)
        names = {name.rstrip(":0123456789") for name in option.findall(step.words)}
        assert all(name.endswith(MARK) or name in {"", "127.0.0."} for name in names), step


def test_each_difference_that_is_meant_has_a_rule_that_says_so_and_is_on_the_page() -> None:
    known, page = clauses(), kafka_listener_page()
    for each in DIFFERENCES:
        assert each.rule in known, each
        assert each.text in page, each.text
        assert any(re.fullmatch(each.command, step.command, re.DOTALL) for step in STEPS), each.command


def test_a_folder_without_the_tools_is_reported(tmp_path: Path) -> None:
    assert missing(tmp_path)
    command = KafkaTools(tmp_path).command("topics", "--list")
    assert command[-3:] == [f"{tmp_path}/*", "org.apache.kafka.tools.TopicCommand", "--list"]


def test_a_tool_is_a_process_with_its_output_and_status(tmp_path: Path) -> None:
    java = KafkaTools(tmp_path, ["sh", "-c", 'read -r line; echo "$line"; echo "$3" >&2; exit 3', "java"])
    done = java.run("topics", "--list", given="said\n")
    assert done == Done(3, "said\n", "org.apache.kafka.tools.TopicCommand\n")
    running = KafkaTools(tmp_path, ["sh", "-c", "echo one; echo two; exec sleep 60", "java"]).start("topics")
    assert (running.line(), running.line()) == ("one\n", "two\n")
    assert running.stop() == Done(-15, "", "")
