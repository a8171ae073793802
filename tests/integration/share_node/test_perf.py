"""`sharegroups perf` on a running cluster: several consumers of one group consume all that was produced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from sharegroups import Admin, NewTopic
from sharegroups.cli.main import main
from tests.support.node import Cluster, unique

RECORDS = 3_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.mark.rule("CT-33", "CT-34", "CT-98")
def test_consumers_in_threads_share_what_was_produced(cluster: Cluster) -> None:
    topic = unique("perf")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 4)])
    where = ("--topic", topic, "--num-records", str(RECORDS), "--bootstrap-server", cluster.bootstrap)
    produced = CliRunner().invoke(main, ["perf", "produce", *where, "--record-size", "1024"])
    assert (produced.exit_code, produced.stderr) == (0, "")
    assert produced.stdout.startswith(f"{RECORDS} records sent, ")
    given = ("--group", topic, "--threads", "3", "--fetch-size", "65536", "--show-detailed-stats", "--timeout", "30000")
    consumed = CliRunner().invoke(main, ["perf", "consume", *where, *given])
    assert consumed.exit_code == 0, consumed.stderr
    rows = consumed.stdout.splitlines()
    each, total = rows[-4:-1], rows[-1].split(", ")
    assert [row.rpartition(" for ")[2] for row in each] == [f"share consumer {number}" for number in (1, 2, 3)]
    assert sum(int(row.split(", ")[5]) for row in each) == int(total[5]) == RECORDS
    assert float(total[2]) == pytest.approx(RECORDS / 1024, abs=1e-4)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        offsets = admin.list_share_group_offsets({topic: None})[topic]
    assert isinstance(offsets, dict)
    assert sum(offset.lag or 0 for offset in offsets.values() if offset is not None) == 0, "all are accepted"
