"""The alerts on damage fire on what a real node serves whose store has a damaged batch, a damaged entry of share state,
and a shard with a hole; the first commands of docs/howto/alerts.md show the cause, and what mends it ends the alerts.

Bits of the append-only file of a stopped store are flipped, as in tests/attack/test_damaged_store.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.attack.append_only_file import AppendOnlyFile
from tests.attack.test_damaged_store import Damage, Node, consume, create, named, produce
from tests.integration.share_node.test_alerts_fired import (
    LEFT_OUT,
    MINUTES,
    NO_ROWS,
    RULES,
    Scraped,
    fires,
    first_command,
    scraped,
    stretched,
    until_served,
)
from tests.support.node import QUICK
from tests.support.ports import free_port
from tests.support.promtool import Labels, assert_each_fires

DAMAGED: Final = "ShareGroupsStoreDamaged"
QUARANTINE: Final = "ShareGroupsStateInQuarantine"
UNREADABLE: Final = "ShareGroupsRecordsUnreadable"
FAILED: Final = "ShareGroupsShardFailed"
#: The damaged share state is of this group; the failed shard has others.
HURT: Final = named("sgs", "U", "value")
#: Groups over the four shards of each kind.
GROUPS: Final = [f"group-{number}" for number in range(6)]
#: A sum of a metric's series with given labels.
Total = Callable[..., float]


@pytest.fixture
def served() -> Iterator[tuple[Node, int]]:
    port = free_port()
    node = Node({**QUICK, **NO_ROWS, "metrics.port": str(port), "metrics.progress.interval.ms": "300"})
    yield node, port
    node.close()


def hurt_batch(file: AppendOnlyFile) -> tuple[str, str]:
    """Damage the second batch of the topic; return its stream and entry."""
    (hit,) = [entry for entry in file.entries(b"{tp:") if b"two" in entry.get(b"b", (b"",))[0]]
    file.flip(hit[b"b"].at + hit[b"b"].data.index(b"two"), bit=1)
    return hit[b"key"].data.decode(), hit[b"id"].data.decode()


def home(file: AppendOnlyFile, group: str) -> str:
    """Return the stream of a group's shard."""
    (stream,) = {each[b"key"].data.decode() for each in file.entries(b"{gc") if group.encode() in each[b"r"].data}
    return stream


def move_entry(file: AppendOnlyFile, group: str) -> str:
    """Damage the key of an entry of the group log, so that it is missing from its own shard; return its stream."""
    entries = [entry for entry in file.entries(b"{gc") if entry[b"t"].data not in b"CN"]
    key = next(entry for entry in entries if group.encode() in entry[b"r"].data)[b"key"]
    file.flip(key.at + key.data.index(b"}") - 1)
    return key.data.decode()


def neighbours(stream: str) -> set[str]:
    """Return the streams that a flipped bit in the key of one moves an entry between."""
    return {stream, stream.translate(str.maketrans("0123", "1032"))}


def in_trouble(total: Total) -> bool:
    return (
        total("sharegroups_damaged_entries_total", kind="tp") > 0
        and total("sharegroups_damaged_entries_total", kind="sgs") > 0
        and total("sharegroups_quarantined_entries", service="share_coordinator") == 1
        and total("sharegroups_topic_log_unreadable_offsets_total") == 1
        and total("sharegroups_shards", state="failed", service="group_coordinator") > 0
        and total("sharegroups_share_group_rows_left_out") > 0
    )


def mended(total: Total) -> bool:
    return total("sharegroups_quarantined_entries") == 0 and total("sharegroups_shards", state="failed") == 0


def of_a_day(seen: Scraped) -> list[Labels]:
    """Return the alerts that go on for a day after damage was found. An entry that is only missing is not damaged."""
    name = "sharegroups_damaged_entries_total"
    kinds = sorted(dict(labels)["kind"] for (of, labels), value in seen.series.items() if of == name and value)
    assert {"tp", "sgs"} <= set(kinds)
    return [*(fires(DAMAGED, "critical", kind=kind) for kind in kinds), fires(UNREADABLE, "critical")]


def found_by(node: Node, alert: str, column: str) -> list[dict[str, Any]]:
    """Return what the page's first command for this alert finds."""
    words = first_command(alert, column)
    assert words[:2] == ["sharegroups", "state"]
    done = node.state(*words[2:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def mend(node: Node, streams: set[str]) -> None:
    """Settle all damage, as docs/howto/damage.md says."""
    done = node.state("repair", "--choose", "skip", "--execute", "--kind", "sgs")
    assert done.returncode == 0, done.stderr
    for one in found_by(node, DAMAGED, "damaged"):
        stream = one["stream"]
        if stream in streams:
            number = stream.partition(":")[2].partition("}")[0]
            done = node.state("skip", "--kind", "gc", "--shard", number, "--entry", one["id"])
            assert done.returncode == 0, done.stderr


@pytest.mark.rule("CM-101", "CM-103")
def test_damage_raises_its_alerts_the_first_commands_show_it_and_mending_ends_them(
    served: tuple[Node, int], tmp_path: Path
) -> None:
    node, port = served
    node.start()
    create(node, "jobs", "fine")
    produce(node, "jobs", ["one", "two", "three"])
    produce(node, "fine", ["one"])
    with ThreadPoolExecutor(len(GROUPS) + 1) as pool:
        read = pool.map(lambda group: consume(node, "fine", group, "one"), (HURT, *GROUPS))
        assert list(read) == [["one"]] * (len(GROUPS) + 1)
    healthy = until_served(port, lambda total: total("sharegroups_share_group_rows_left_out") > 0)
    well = (healthy, scraped(port))
    node.stop()

    file = AppendOnlyFile(node.data)
    homes = {group: home(file, group) for group in GROUPS}
    whole = next(group for group in GROUPS if homes[group] not in neighbours(homes[GROUPS[0]]))
    batch, damage, moved = hurt_batch(file), Damage(file, "sgs", "U", "value"), move_entry(file, GROUPS[0])
    node.start(ready=False)
    produce(node, "fine", ["two"])
    assert consume(node, "jobs", whole, "three") == ["one", "three"]
    trouble = until_served(port, in_trouble)

    found = found_by(node, DAMAGED, "damaged")
    assert {batch, (damage.stream, damage.entry)} <= {(one["stream"], one.get("id")) for one in found}
    assert any(one["stream"] == damage.stream for one in found_by(node, QUARANTINE, "damaged"))
    assert [1, 1] in [one.get("unreadable_offsets") for one in found_by(node, UNREADABLE, "unreadable_offsets")]
    assert first_command(FAILED, "cause") == ["kubectl", "logs", "POD"]
    causes = [line["cause"] for line in node.log_lines() if line["event"] == "shard_dropped"]
    failed = {one["stream"] for one in found if one["stream"].startswith("{gc")}
    assert failed <= neighbours(moved)
    assert any(stream.partition("}")[0] in cause for cause in causes for stream in failed), causes

    mend(node, failed)
    after: Scraped = until_served(port, mended)

    open_ones = [
        fires(QUARANTINE, "critical", service="share_coordinator"),
        fires(FAILED, "critical", service="group_coordinator"),
    ]
    cases = {
        "well": (stretched(*well), MINUTES, (LEFT_OUT,)),
        "in trouble": (stretched(healthy, trouble), MINUTES, (LEFT_OUT, *of_a_day(trouble), *open_ones)),
        "mended": (stretched(trouble, after), MINUTES, (LEFT_OUT, *of_a_day(after))),
    }
    assert_each_fires(tmp_path, RULES, cases)
