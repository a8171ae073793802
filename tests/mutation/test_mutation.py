"""Changes are drawn from the right places, a sample is the same every time, and a planted change is found."""

from __future__ import annotations

import pytest

from tests.mutation.__main__ import judge, report
from tests.mutation.changes import Change, changes, compiles
from tests.mutation.equivalent import LIST, Equivalents
from tests.mutation.rooms import CORES, ENGINE, HOSTS, ROOMS, ROOT, Place, draw, files, stages

SOURCE = '''"""At most 5."""
import asyncio
LIMIT: int = 3


def look(self, low: int, high: int = 7) -> bool:
    """Whether low < high."""
    if low < high and not self.é:
        log.info("seen", low + 1)
        raise ValueError(f"{low + 2}")
    assert low == 4
    self.total += (low) - high
    put(low, high, 1)
    return a(low,
             self.high) is None
'''


def changes_of(source: str) -> list[str]:
    return [str(change) for change in changes(source)]


def test_every_kind_of_change_is_offered_and_words_for_people_are_not() -> None:
    assert changes_of(SOURCE) == [
        "3: constant: 3 → 4",
        "6: constant: 7 → 8",
        "8: condition: low < high and not self.é → not (low < high and not self.é)",
        "8: border: < → <=",
        "8: and/or: and → or",
        "12: statement: self.total += (low) - high → pass",
        "12: arithmetic: - → +",
        "13: statement: put(low, high, 1) → pass",
        "13: arguments: low, high → high, low",
        "13: constant: 1 → 2",
        "14: arguments: low, self.high → self.high, low",
        "14: border: is → is not",
    ]


def test_each_change_changes_its_place_alone() -> None:
    for change in changes(SOURCE):
        assert compiles(SOURCE, change)
        changed = change.apply(SOURCE)
        assert changed[: change.start] == SOURCE[: change.start]
        assert changed[change.start :].startswith(change.new)
        assert changed.endswith(SOURCE[change.end :])


def test_a_source_that_was_changed_since_is_an_error() -> None:
    with pytest.raises(ValueError, match="draw again"):
        changes(SOURCE)[0].apply("# new\n" + SOURCE)


def test_what_is_no_longer_python_is_left_out() -> None:
    assert not compiles("f(x)\n", Change("", 1, 0, 2, "f(", "f"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_sample_is_the_same_every_time_and_takes_every_file_once_before_any_twice(room: str) -> None:
    names = files(ROOT, room)
    drawn = draw(ROOT, room, 25, 3)
    assert drawn == draw(ROOT, room, 25, 3) != draw(ROOT, room, 25, 4)
    assert len({place.path for place in drawn}) == 25
    assert {place.path for place in drawn} <= set(names)


def test_rooms_share_no_file() -> None:
    each = [set(files(ROOT, room)) for room in (CORES, HOSTS, ENGINE)]
    assert all(each)
    assert sum(map(len, each)) == len(set().union(*each))


def a_place(old: str, new: str) -> Place:
    path = "services/partition_leader/share_partition/core/locks.py"
    source = (ROOT / path).read_text(encoding="utf-8")
    assert source.count(old) == 1
    at = source.index(old)
    return Place(CORES, path, Change("planted", source[:at].count("\n") + 1, at, at + len(old), old, new))


def test_its_own_test_checks_first_and_seeds_come_before_other_packages() -> None:
    own, room, package, played, *rest = stages(ROOT, a_place("is_live(entry)]", "True]"), 7)
    unit = "tests/unit/partition_leader"
    assert (own, room, package) == (
        [f"{unit}/share_partition/core/test_locks.py"],
        [f"{unit}/share_partition/core"],
        [unit],
    )
    assert played == ["--seeds", "7"]
    assert ["tests/unit/shard_runtime"] in rest
    assert [unit] not in rest


def test_a_bug_is_found_and_a_change_that_is_none_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutation.__main__.stages", lambda *given: stages(*given)[:1])
    assert "test_locks.py::" in judge(a_place("if is_live(entry)]", "if not is_live(entry)]"), 0)
    assert judge(a_place("self._entries.clear()", "self._entries = []"), 0) == ""


def test_the_report_names_what_was_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = a_place("self._entries.clear()", "pass"), a_place("is_live(entry)]", "True]")
    report([good, bad], {good.key: "", bad.key: "a test"}, Equivalents({}))
    assert capsys.readouterr().out.splitlines() == [
        f"not found: {good.path}:{good.change}",
        "room=cores changes=2 found=1 by_tests=1 by_seeds=0 equivalent=0 not_found=1 share=0.50 of_different=0.50",
    ]


def test_an_equivalent_change_is_counted_apart_and_never_as_found(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = a_place("self._entries.clear()", "pass"), a_place("is_live(entry)]", "True]")
    words = (good.path, "self._entries.clear()", "planted: self._entries.clear() → pass")
    report([good, bad], {good.key: "", bad.key: "seed 3: X"}, Equivalents({words: "it is empty"}))
    assert capsys.readouterr().out.splitlines() == [
        f"equivalent, it is empty: {good.path}:{good.change}",
        "room=cores changes=2 found=1 by_tests=0 by_seeds=1 equivalent=1 not_found=0 share=0.50 of_different=1.00",
    ]


def test_every_equivalent_change_is_one_of_todays_sources() -> None:
    assert Equivalents.load(LIST).stale() == []
    assert Equivalents({("client/sharegroups/consuming/core/fetch_pace.py", "x", "border: x"): "none"}).stale()
