"""The dead letters that a purge would delete."""

from __future__ import annotations

import pytest

from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.dlq.choosing import choice_of
from sharegroups.cli.dlq.purge import PurgePlan, purge_plan
from sharegroups.cli.dlq.reading import Reading, queue_of
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, store

from .conftest import DLQ, T0


def planned(fake: FakeCluster, before_ms: int | None) -> PurgePlan:
    with clients.open_client(Admin, {"bootstrap.servers": fake.bootstrap}) as admin:
        queue = queue_of(admin, choice_of(DLQ, None), changes=True)
        return purge_plan(Reading(admin, queue), queue.partitions, before_ms)


@pytest.mark.rule("CT-128")
def test_partitions_are_cut_each_by_itself_and_only_what_goes_is_counted(queue: FakeCluster) -> None:
    for at_ms in (T0, T0 + 1, T0 + 2):
        store(queue, DLQ, copy_of(0, value=b"v" * 600_000), (None, b"", (), 5), at_ms=at_ms)
        store(queue, DLQ, copy_of(0), partition=1, at_ms=at_ms + 2)
    whole = planned(queue, None)
    assert (whole.ends, whole.document(DLQ, True, {})["letters"]) == ({0: 6, 1: 3}, 6)
    cut = planned(queue, T0 + 2)
    document = cut.document(DLQ, True, {})
    assert (cut.ends, document["letters"], document["other_records"]) == ({0: 4}, 2, 2)
    assert planned(queue, T0).ends == {}


@pytest.mark.rule("CT-122", "CT-128")
def test_what_comes_behind_the_cut_is_not_read(queue: FakeCluster) -> None:
    for number in range(5):
        store(queue, DLQ, copy_of(number, value=b"v" * 600_000), at_ms=T0 + number)
    log, asked = queue.log(DLQ), list[int]()
    read = log.read
    log.read = lambda offset, max_bytes: asked.append(offset) or read(offset, max_bytes)  # type: ignore[func-returns-value, method-assign]
    assert planned(queue, T0 + 1).ends == {0: 1}
    assert asked == [0, 1]
