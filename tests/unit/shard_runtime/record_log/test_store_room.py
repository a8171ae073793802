"""How many more records a store node takes below its memory limit."""

from __future__ import annotations

from random import Random

import pytest

from shard_runtime.record_log.store_room import Charge, StoreFullError, StoreRoom
from shard_runtime.record_log.store_usage import StoreUsage

MIB = 1 << 20
LIMIT = 1_000 * MIB


class Bench:
    """A room over one node, with what it reported and how often it asked for a reading."""

    def __init__(self, leaders: int = 1, percent: int = 95, used: int = 0) -> None:
        self.said: list[tuple[str, int, bool]] = []
        self.wanted = 0
        self.room = StoreRoom(lambda _: "s:1", percent=percent, wanted=self._want)
        self.room.serve(lambda: leaders, lambda node, usage, full: self.said.append((node, usage.percent, full)))
        self.read(used)

    def _want(self) -> None:
        self.wanted += 1

    def read(self, used_mib: int) -> None:
        self.room.ask("s:1")
        self.room.read("s:1", StoreUsage(used_mib * MIB, LIMIT))

    def take(self, mib: int) -> Charge:
        charge = self.room.take("key", mib * MIB, 1)
        assert charge is not None
        return charge

    def is_refused(self, mib: int = 1) -> bool:
        try:
            self.take(mib)(None)
        except StoreFullError:
            return True
        return False


@pytest.mark.rule("CM-214")
def test_records_are_refused_from_the_level_on_until_the_memory_is_clearly_below_it_and_both_is_reported_once() -> None:
    bench = Bench(used=949)
    assert bench.said == []
    for used, refused in ((950, True), (960, True), (931, True), (929, False), (940, False), (951, True)):
        bench.read(used)
        assert bench.is_refused() is refused, used
    assert bench.said == [("s:1", 95, True), ("s:1", 92, False), ("s:1", 95, True)]


@pytest.mark.rule("CM-214")
def test_the_refusal_names_the_node_its_memory_the_setting_and_what_helps() -> None:
    with pytest.raises(StoreFullError) as refused:
        Bench(used=955).take(1)
    for words in ("s:1", "955 MiB", "1000 MiB", "95 %", "store.produce.memory.percent", "Nothing was written",
                  "topics delete-records", "CONFIG SET maxmemory"):  # fmt: skip
        assert words in str(refused.value)


@pytest.mark.rule("CM-214")
@pytest.mark.parametrize("case", ["no limit", "turned off", "no leader", "unknown node"])
def test_nothing_is_limited_without_a_limit_or_when_it_is_turned_off(case: str) -> None:
    room = StoreRoom(lambda _: "" if case == "unknown node" else "s:1", percent=100 if case == "turned off" else 95)
    if case != "no leader":
        room.serve(lambda: 1)
    room.ask("s:1")
    room.read("s:1", StoreUsage(LIMIT, 0 if case == "no limit" else LIMIT))
    assert room.take("key", LIMIT, 1) is None
    if case != "unknown node":
        assert (room.near(), room.asking()) == ((), ())


@pytest.mark.rule("CM-214")
def test_a_node_that_loses_its_limit_or_leaves_takes_records_again_and_that_is_reported() -> None:
    bench = Bench(used=960)
    bench.room.read("s:1", StoreUsage(960 * MIB, 0))
    assert bench.room.take("key", MIB, 1) is None
    assert bench.said[-1] == ("s:1", 96, False)


@pytest.mark.rule("CM-215")
def test_a_burst_between_two_readings_is_counted_and_never_passes_the_level() -> None:
    bench = Bench(used=500)
    taken = 0
    for _ in range(10_000):
        if bench.is_refused():
            break
        taken += 1
    assert 300 < taken <= 450 * 4 // 5, "each MiB may need a quarter more"
    assert bench.wanted >= 2
    assert bench.said == [], "only a reading shows that the store is full"
    assert bench.room.asking() == ("s:1",)


@pytest.mark.rule("CM-215")
def test_after_a_refusal_nothing_smaller_passes_before_the_next_reading() -> None:
    bench = Bench(used=900)
    assert bench.is_refused(45)
    assert bench.is_refused(1)
    bench.read(900)
    assert not bench.is_refused(1)


@pytest.mark.rule("CM-215")
def test_what_was_on_its_way_when_a_reading_was_sent_counts_beyond_it_until_the_next_one() -> None:
    bench = Bench(used=800)
    charge = bench.take(80)
    bench.room.ask("s:1")
    late = bench.take(16)
    bench.room.read("s:1", StoreUsage(800 * MIB, LIMIT))
    assert bench.is_refused(40), "the reading may have neither"
    charge(None)
    late(None)
    bench.read(896)
    assert not bench.is_refused(40)


@pytest.mark.rule("CM-215")
def test_several_leaders_with_readings_of_different_ages_stay_below_the_level() -> None:
    rng = Random(5)
    for _ in range(200):
        leaders = [Bench(leaders=4, used=700) for _ in range(4)]
        used = 700.0
        for _ in range(1_000):
            bench = rng.choice(leaders)
            size = rng.randrange(1, 8)
            if not bench.is_refused(size):
                used += size
            # It reads again soon after it has asked; the others keep what they know.
            if bench.room.asking() and rng.random() < 0.5:
                bench.read(int(used))
        assert 850 < used < 990, "what is left goes to acknowledgements and deletions"


@pytest.mark.rule("CM-215")
def test_one_request_that_fits_as_a_whole_is_taken_however_many_leaders_there_are() -> None:
    bench = Bench(leaders=50, used=900)
    charge = bench.take(39)
    assert bench.is_refused(1)
    charge(None)
    bench.read(900)
    assert not bench.is_refused(39)


@pytest.mark.rule("CM-215")
def test_near_the_limit_and_while_it_is_full_the_memory_is_read_more_often() -> None:
    bench = Bench(used=799)
    assert (bench.room.near(), bench.room.asking(), bench.wanted) == ((), (), 0)
    charge = bench.take(1)
    assert bench.room.near() == ("s:1",), "with what was taken since"
    charge(None)
    bench.read(700)
    assert bench.room.near() == ()
    bench.take(25)
    assert (bench.wanted, bench.room.asking()) == (1, ("s:1",)), "an eighth of what was left"
    bench.read(960)
    assert (bench.room.near(), bench.room.asking()) == (("s:1",), ())
