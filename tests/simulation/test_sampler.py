"""What the sampler reports for a share-partition that has forgotten a lock or a write."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kip932.ids import ACK_ACCEPT
from tests.simulation.sampler import _forgotten, _overdue_ms
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench


def host(bench: Bench) -> SimpleNamespace:
    return SimpleNamespace(core=bench.core)


@pytest.mark.rule("PL-1206")
def test_a_lock_is_overdue_by_how_much_it_has_run_out() -> None:
    bench = Bench(log=[(0, 9)])
    assert _overdue_ms(host(bench), bench.now) == 0
    bench.fetch()
    assert _overdue_ms(host(bench), bench.now + LOCK_MS) == 0
    assert _overdue_ms(host(bench), bench.now + LOCK_MS + 7) == 7
    bench.pass_time(LOCK_MS)
    assert _overdue_ms(host(bench), bench.now + LOCK_MS) == 0


def test_a_pending_record_waits_for_a_write_or_is_forgotten() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    assert _forgotten(host(bench)) == 0
    bench.ack("M", (0, 3, ACK_ACCEPT))
    assert _forgotten(host(bench)) == 0
    bench.core._state.write_back.outstanding = None
    assert _forgotten(host(bench)) == 4
