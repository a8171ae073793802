"""The dead letters that a `dlq` command selects: topic, group, filters."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from kip932.ids import RESOURCE_GROUP
from sharegroups.cli.dlq import list_letters
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ
from .listing import places


@pytest.mark.rule("CT-122")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--origin", "orders"], [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]),
        (["--origin", "orders:1"], [(1, 2)]),
        (["--origin", "order"], []),
        (["--group", "h"], [(0, 2)]),
        (["--cause", "REJECTED by"], [(0, 1), (1, 0), (1, 2)]),
        (["--cause", "threshold", "--group", "g"], [(0, 0)]),
        (["--reason", "ReFused"], [(0, 1), (1, 0)]),
        (["--reason", "line 12, in send_mail"], [(0, 1), (1, 0)]),
        (["--reason", "timeouterror", "--cause", "threshold"], [(0, 2)]),
        (["--reason", "timeouterror", "--cause", "rejected"], []),
        (["--since", "2023-11-14T22:14:20Z"], [(0, 2), (1, 0), (1, 2)]),
        (["--since", "2023-11-14T22:14:20.001"], [(1, 0), (1, 2)]),
        (["--until", "2023-11-14T23:14:20+01:00"], [(0, 0), (0, 1)]),
        (["--since", "2023-11-14T22:14:20", "--until", "2023-11-14T22:14:21"], [(0, 2)]),
        (["--since", "1h"], []),
        (["--until", "1h", "--limit", "2"], [(0, 0), (0, 1)]),
        (["--limit", "4"], [(0, 0), (0, 1), (0, 2), (1, 0)]),
    ],
)
def test_letters_are_chosen(letters: FakeCluster, words: list[str], found: list[tuple[int, int]]) -> None:
    assert places(*words) == found


@pytest.mark.rule("CT-120")
def test_a_dead_letter_topic_of_a_group_that_is_not_there_is_named_with_the_group(letters: FakeCluster) -> None:
    letters.configs[RESOURCE_GROUP, "g"] = {"errors.deadletterqueue.topic.name": "dlq.order"}
    result = sharegroups("dlq", "list", "--group", "g")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Topic dlq.order, the dead-letter topic of group g, not found. Did you mean 'dlq.orders'?" in result.stderr


@pytest.mark.rule("CT-120")
def test_a_list_of_no_topic_names_those_that_there_are(letters: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    result = sharegroups("dlq", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Give --topic DLQ, or --group G for the DLQ topic of a group." in result.stderr
    assert "Dead-letter topics of groups: dlq.orders (of g, h)." in result.stderr
    monkeypatch.setattr(list_letters, "_NAMED_MAX", 1)
    assert "(of g and 1 more)" in sharegroups("dlq", "list").stderr
    for group in ("g", "h"):
        del letters.configs[RESOURCE_GROUP, group]
    assert "No group here has a dead-letter topic." in sharegroups("dlq", "list").stderr


@pytest.mark.rule("CT-120")
def test_a_name_that_no_topic_can_have_is_refused_with_the_reason(letters: FakeCluster) -> None:
    for words in (["list"], ["redrive", "--all"], ["purge", "--all", "--yes"]):
        result = sharegroups("dlq", *words, "--topic", "no name")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "not found" not in result.stderr
        assert "'no name'" in result.stderr


@pytest.mark.rule("CT-122")
def test_how_long_ago_counts_from_now(queue: FakeCluster) -> None:
    now_ms = int(time.time() * 1_000)
    for number, age_ms in enumerate((7_300_000, 7_100_000, 0)):
        store(queue, DLQ, copy_of(number, at_ms=5), at_ms=now_ms - age_ms)
    assert places("--since", "2h") == [(0, 1), (0, 2)]
    assert places("--until", "120m") == [(0, 0)]


@pytest.mark.parametrize(
    "words",
    [["--topic", "t:x"], ["--topic", ":1"], ["--topic", "t:2147483648"], ["--origin", "t:-1", "--topic", "t"],
     ["--topic", ""], ["--topic", "t", "--until", "2025-13-01T00:00:00"], ["--topic", "t", "--since", "5w"],
     ["--topic", "t", "--limit", "0"], ["--topic", "t", "--since", "2025-01-01"]],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_asked(words: list[str]) -> None:
    result = CliRunner().invoke(main, ["dlq", "list", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: " in result.stderr


@pytest.mark.rule("CT-120")
def test_a_group_without_a_dead_letter_topic_is_refused_with_the_config_to_set(letters: FakeCluster) -> None:
    letters.groups["lone group"] = None
    result = sharegroups("dlq", "list", "--group", "lone group")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Group lone group has no dead-letter topic" in result.stderr
    setting = "--add-config errors.deadletterqueue.topic.name=dlq.TOPIC"
    assert f"configs alter --group 'lone group' {setting}" in result.stderr
