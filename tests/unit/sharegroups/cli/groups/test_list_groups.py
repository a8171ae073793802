"""`groups list`: one table of all groups with their lag."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import pytest

from kip932.errors import ClusterAuthorizationFailedError, KafkaError, UnsupportedVersionError
from kip932.ids import PROGRESS_ROWS_MAX, TopicPartition
from sharegroups.admin_values import GroupOffsets, ListGroupsResult, ShareGroupOffset
from sharegroups.cli import clients
from sharegroups.share_progress import ProgressPage, ShareProgress
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.insight.samples import groups, progress


class StubAdmin:
    """Returns the progress of `rows`, at most `rows_max` in a page, as leaders do."""

    def __init__(self) -> None:
        self.listed = groups()
        self.rows: Sequence[ShareProgress] = ()
        self.rows_max = PROGRESS_ROWS_MAX
        self.missing: tuple[str, ...] = ()
        self.stored: Mapping[str, GroupOffsets | KafkaError] = {}
        self.fails: KafkaError | None = None
        #: How many groups each request for progress named; None: all.
        self.asked: list[int | None] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_topics(self, names: Iterable[str]) -> dict[str, object]:
        return {}

    def list_groups(self, states: Iterable[str] | None, types: Iterable[str]) -> ListGroupsResult:
        return self.listed

    def list_share_progress(self, names: Sequence[str] | None = None, *, limit: int) -> ProgressPage:
        if self.fails is not None:
            raise self.fails
        self.asked.append(None if names is None else len(names))
        wanted = None if names is None else set(names)
        found = [row for row in self.rows if wanted is None or row.group in wanted]
        found.sort(key=lambda row: -(row.lag or 0))
        return ProgressPage(tuple(found[: min(self.rows_max, limit)]), len(found), self.missing)

    def list_share_group_offsets(self, names: Mapping[str, None]) -> dict[str, Any]:
        return {name: self.stored.get(name, GroupOffsets()) for name in names}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> StubAdmin:
    made = StubAdmin()
    monkeypatch.setattr(clients, "open_client", lambda kind, settings: made)
    return made


@pytest.mark.rule("CT-156")
def test_one_table_has_all_groups_the_largest_lag_first(admin: StubAdmin) -> None:
    admin.listed = groups(idle=1, stopped=0, workers=3)
    admin.rows = [
        progress("workers", "orders", lag=3, oldest_ms=1_000),
        progress("workers", "parcels", lag=4, oldest_ms=61_000),
        progress("stopped", "orders", lag=12, oldest_ms=7_500_000),
        progress("idle", "orders", lag=0),
    ]
    result = sharegroups("groups", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "",
        "GROUP           STATE    MEMBERS  TOPICS  LAG          OLDEST",
        "stopped         Empty    0        1       12           2 h 5 min",
        "workers         Stable   3        2       7            1 min 1 s",
        "idle            Stable   1        1       0            -",
        "",
    ]
    assert admin.asked == [None]


@pytest.mark.rule("CT-156")
def test_json_has_the_fields_that_it_had_and_the_figures(admin: StubAdmin) -> None:
    admin.listed = groups(a=1, b=None)
    admin.rows = [progress("a", lag=3, oldest_ms=1_000)]
    admin.missing = ("n:1",)
    result = sharegroups("groups", "list", "--output", "json")
    assert json.loads(result.stdout) == [
        {
            "group": "a", "state": "Stable", "members": 1, "topics": 1, "lag": 3, "lag_at_least": True,
            "oldest_age_ms": 1_000,
        },
        {
            "group": "b", "state": "Unknown", "members": None, "topics": None, "lag": None, "lag_at_least": False,
            "oldest_age_ms": None,
        },
    ]  # fmt: skip


@pytest.mark.rule("CT-156")
def test_a_leader_that_does_not_answer_makes_sums_partial_and_the_status_1(admin: StubAdmin) -> None:
    admin.listed, admin.missing = groups(a=1, b=1), ("10.0.0.3:9092",)
    admin.rows = [progress("a", lag=3, oldest_ms=1_000)]
    result = sharegroups("groups", "list")
    assert result.exit_code == 1
    assert "Node 10.0.0.3:9092 did not answer; sums without its partitions are marked ≥." in result.stderr
    assert [line.split() for line in result.stdout.splitlines()[2:4]] == [
        ["a", "Stable", "1", "≥1", "≥3", "≥1", "s"],
        ["b", "Stable", "1", "?", "?", "?"],
    ]


@pytest.mark.rule("CT-156")
def test_the_stored_lag_of_a_group_that_no_leader_counts_is_shown(admin: StubAdmin) -> None:
    """After its leaders started again, a group without a member is in no leader's memory."""
    admin.listed = groups(fresh=0, hurt=0, refused=0, stopped=0)
    t0, t1, u0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
    admin.stored = {
        "stopped": GroupOffsets({t0: ShareGroupOffset(5, 1, 40), u0: ShareGroupOffset(0, 1, 2)}),
        "hurt": GroupOffsets({t0: ShareGroupOffset(5, 1, 7)}, {t1: KafkaError("damaged")}),
        "refused": ClusterAuthorizationFailedError("no"),
    }
    assert [line.split() for line in sharegroups("groups", "list").stdout.splitlines()[2:6]] == [
        ["stopped", "Empty", "0", "2", "42", "?"],
        ["hurt", "Empty", "0", "1", "≥7", "?"],
        ["refused", "Empty", "0", "?", "?", "?"],
        ["fresh", "Empty", "0", "0", "0", "-"],
    ]


@pytest.mark.rule("CT-156")
def test_of_ten_thousand_groups_the_first_thousand_are_printed_with_exact_sums(admin: StubAdmin) -> None:
    count = 10_000
    members: dict[str, Any] = {f"g{number:05}": 1 for number in range(count)}
    admin.listed = groups(**members)
    admin.rows = [
        progress(f"g{number:05}", topic, lag=number + extra, oldest_ms=1)
        for number in range(count)
        for topic, extra in (("t", 0), ("u", 1))
    ]
    result = sharegroups("groups", "list")
    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines), lines[-1]) == (0, 1_004, "… and 9,000 more, sorted by lag; --all")
    assert lines[2].split()[:5] == ["g09999", "Stable", "1", "2", "19,999"]
    assert admin.asked == [None, 500, 500]
    few = sharegroups("groups", "list", "--limit", "2").stdout.splitlines()
    assert (len(few), few[-1]) == (6, "… and 9,998 more, sorted by lag; --all")
    admin.asked.clear()
    everything = sharegroups("groups", "list", "--all").stdout
    assert everything.count("\n") == count + 3
    assert "≥" not in everything
    assert len(admin.asked) == 21
    assert len(json.loads(sharegroups("groups", "list", "--output", "json").stdout)) == count


@pytest.mark.rule("CT-156")
def test_an_older_cluster_lists_its_groups_without_lags(admin: StubAdmin) -> None:
    admin.listed, admin.fails = groups(a=None), UnsupportedVersionError("no such call")
    result = sharegroups("groups", "list")
    assert (result.exit_code, result.stdout.splitlines()[2].split()) == (0, ["a", "Unknown", "?", "?", "?", "?"])
    assert "older version" in result.stderr
    admin.fails = ClusterAuthorizationFailedError("refused")
    result = sharegroups("groups", "list")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 4)
    assert "Error: The lags are not known: CLUSTER_AUTHORIZATION_FAILED: refused" in result.stderr


@pytest.mark.rule("CT-156")
def test_all_and_a_limit_exclude_each_other(admin: StubAdmin) -> None:
    result = sharegroups("groups", "list", "--all", "--limit", "3")
    assert (result.exit_code, "[limit], [all]" in result.stderr) == (1, True)
