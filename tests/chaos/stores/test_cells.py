"""docs/guarantees.md: every cell without "can be lost" has an existing test for every store that it is about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.chaos.stores.catalogue import catalogue
from tests.chaos.stores.cells import COLUMNS, ROWS

ROOT: Final = Path(__file__).resolve().parents[3]
WITHOUT_A_TEST: Final = ("can be lost", "not tested")


class Cell(NamedTuple):
    """One cell of the page's table."""

    row: str
    column: str
    text: str

    @property
    def promises(self) -> bool:
        """Return whether it promises something that a test can show."""
        return self.text != "–" and not any(words in self.text for words in WITHOUT_A_TEST)


def cells(page: str) -> Iterator[Cell]:
    """Yield the cells of a page's table."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    header, _, *rows = ([word.strip() for word in line.strip("|").split("|")] for line in lines)
    for row, *texts in rows:
        for column, text in zip(header[1:], texts, strict=True):
            yield Cell(row, column, text)


def gaps(page: str) -> list[str]:
    """Return the page's promises without evidence."""
    return [
        f"{cell.row} / {cell.column}: no test on {shape}"
        for cell in cells(page)
        if cell.promises
        for shape in COLUMNS[cell.column]
        if ROWS[cell.row].concerns(shape) and not any(map(exists, ROWS[cell.row].evidence(shape)))
    ]


@cache
def exists(name: str) -> bool:
    """Return whether there is an experiment or a test of this name."""
    path, _, test = name.partition("::")
    if not test:
        return name in {experiment.name for experiment in catalogue()}
    module = ROOT / path
    tree = ast.parse(module.read_text()) if module.exists() else ast.Module([], [])
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test for node in ast.walk(tree)
    )


@pytest.fixture(scope="module")
def page() -> str:
    """Return the page."""
    return (ROOT / "docs" / "guarantees.md").read_text()


def test_the_page_has_the_rows_and_columns_that_tests_are_listed_for(page: str) -> None:
    found = list(cells(page))
    assert {cell.row for cell in found} == set(ROWS)
    assert {cell.column for cell in found} == set(COLUMNS)


def test_every_cell_without_can_be_lost_has_a_test(page: str) -> None:
    assert gaps(page) == []


def test_every_test_that_is_listed_exists() -> None:
    listed = [name for row in ROWS.values() for names in row.tests.values() for name in names]
    assert [name for name in listed if not exists(name)] == []


def test_a_promise_that_nothing_shows_is_found(page: str) -> None:
    promise = next(line for line in page.splitlines() if line.startswith("| the machine of the store loses power"))
    bold = page.replace(promise, f"| the machine of the store loses power {'| nothing ' * len(COLUMNS)}|")
    assert len(gaps(bold)) == sum(map(len, COLUMNS.values()))


def test_an_experiment_that_is_taken_away_is_missed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = exists
    monkeypatch.setitem(globals(), "exists", lambda name: not name.endswith("/master_killed") and there(name))
    row = "a master is killed, and a replica takes over"
    assert gaps(page) == [
        f"{row} / Replicas, two of three copies confirm: no test on sentinel-2",
        f"{row} / Replicas, every copy confirms: no test on sentinel-3",
        f"{row} / Replicas, every copy confirms: no test on cluster-2",
    ]
