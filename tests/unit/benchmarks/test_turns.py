"""The table of `benchmarks.turns`: releases are compared within a round. Nothing here is timed."""

from __future__ import annotations

from benchmarks.turns import MEASURES, table


def _round(kind: str, *figures: tuple[str, float]) -> dict[str, object]:
    return {"kind": kind, "turns": [{"system": system} | dict.fromkeys(MEASURES, us) for system, us in figures]}


def test_a_ratio_is_the_median_over_rounds_of_both_nodes_of_each_release() -> None:
    runs = [
        _round("produce", ("sharegroups", 2), ("before", 1), ("before", 3), ("sharegroups", 4)),
        _round("produce", ("sharegroups", 20), ("before", 20), ("before", 40), ("sharegroups", 40)),
        _round("produce", ("sharegroups", 3), ("before", 1), ("before", 1), ("sharegroups", 1)),
    ]
    _, wall, node, client = table(runs).splitlines()
    assert [line.split()[1] for line in (wall, node, client)] == ["wall", "node", "client"]
    assert wall.split()[2:] == ["3.00", "2.00", "1.50", "0.50"]


def test_each_kind_has_its_own_lines() -> None:
    turns = [("sharegroups", 2.0), ("before", 1.0), ("before", 1.0), ("sharegroups", 2.0)]
    lines = table([_round("produce", *turns), _round("consume-one", *turns)]).splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == ["produce"] * 3 + ["consume-one"] * 3
