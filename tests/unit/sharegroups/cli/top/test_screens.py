"""The screens of `top`, without a terminal: what they show, and where the keys lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroups.insight.rows import rows_of
from tests.unit.sharegroups.insight.samples import groups, page, progress

from .pictures import FOLDER, ORDERS0, ORDERS1, StubSource, app_of, compare, text_of

pytestmark = pytest.mark.asyncio

NARROW, WIDE = (80, 24), (160, 24)


@pytest.mark.rule("CT-157")
@pytest.mark.parametrize(("size", "name"), [(NARROW, "groups-80"), (WIDE, "groups-160")])
async def test_all_groups_are_shown_the_worst_first(size: tuple[int, int], name: str) -> None:
    source = StubSource()
    async with app_of(source).run_test(size=size) as pilot:
        await pilot.pause()
        compare(pilot, name)
        assert source.asked == [("overview",)]


@pytest.mark.rule("CT-157")
async def test_keys_choose_the_order_and_the_chosen_row_is_described() -> None:
    async with app_of(StubSource()).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("n")
        assert "name first" in text_of(pilot)
        assert text_of(pilot).index("audit") < text_of(pilot).index("billing")
        await pilot.press("down", "down")
        assert "mailer · parcels: held 31 min by w-7" in text_of(pilot)
        await pilot.press("r")
        await pilot.pause()
        assert "mailer · parcels: held 31 min by w-7" in text_of(pilot), "the row stays chosen"


@pytest.mark.rule("CT-157")
async def test_a_filter_is_typed_kept_and_cleared() -> None:
    async with app_of(StubSource()).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("slash", *"held", "enter")
        await pilot.pause()
        shown = text_of(pilot)
        assert "only “held”: 1" in shown
        assert ("mailer" in shown, "billing" in shown) == (True, False)
        await pilot.press("escape")
        await pilot.pause()
        assert "billing" in text_of(pilot)


@pytest.mark.rule("CT-157")
async def test_of_very_many_rows_the_first_are_shown_and_the_others_counted() -> None:
    source = StubSource()
    many = [progress(f"g{number}", lag=number, oldest_ms=1) for number in range(5_000)]
    source.all = source.all._replace(rows=rows_of(page(*many), groups()), left_out=7)
    async with app_of(source).run_test(size=(120, 24)) as pilot:
        await pilot.pause()
        assert "… and 4,800 more, / filters · 7 rows left out by their leaders" in text_of(pilot)


@pytest.mark.rule("CT-158")
@pytest.mark.parametrize(("size", "name"), [(NARROW, "group-80"), (WIDE, "group-160")])
async def test_enter_shows_members_assignment_and_the_strip_of_each_partition(size: tuple[int, int], name: str) -> None:
    source = StubSource()
    async with app_of(source).run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        compare(pilot, name)
        # First it is asked which partitions there are, then about their records; the screen before asks no longer.
        assert source.asked == [("overview",), ("group", "billing"), ("group", "billing", ORDERS0, ORDERS1)]
        await pilot.press("escape")
        await pilot.pause()
        assert source.asked[-1] == ("overview",)


@pytest.mark.rule("CT-158")
async def test_a_record_is_explained_with_its_value_and_its_neighbours_are_one_key_away() -> None:
    source = StubSource()
    async with app_of(source).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        compare(pilot, "record")
        await pilot.press("right")
        await pilot.pause()
        assert "Record 105 of orders-0" in text_of(pilot)
        await pilot.press("o", *"119", "enter")
        await pilot.pause()
        assert "It is delivered with the next fetch." in text_of(pilot)
        await pilot.press("right")
        await pilot.pause()
        assert "The log has no such record." in text_of(pilot)
        assert [call[3] for call in source.asked if call[0] == "record"] == [None, 105, 119, 120]
        await pilot.press("o", "escape", "escape", "escape")
        await pilot.pause()
        assert "largest lag first" in text_of(pilot)


@pytest.mark.rule("CT-157")
async def test_names_of_others_are_shown_as_they_are_and_never_move_the_cursor() -> None:
    source, evil = StubSource(), "e\x1b[2J[bold red]x[/]\"'\u202e\u200f\n"
    source.all = source.all._replace(rows=rows_of(page(progress(evil, evil, lag=1, oldest_ms=1)), groups()))
    async with app_of(source).run_test(size=WIDE) as pilot:
        await pilot.pause()
        await pilot.press("slash", "e", "enter")
        shown = text_of(pilot)
        assert "e\\x1b[2J[bold red]x[/]\"'\\u202e\\u200f\\n" in shown
        assert not set(shown) & set("\x1b\u202e\u200f")
        await pilot.press("enter")
        await pilot.pause()
        assert "e\\x1b[2J[bold red]x[/]" in text_of(pilot)


@pytest.mark.rule("CT-157", "CT-158")
async def test_the_pictures_of_the_page_are_those_of_the_screens() -> None:
    page_text = (Path(__file__).parents[5] / "docs/howto/what-waits.md").read_text(encoding="utf-8")
    for name in ("groups-80", "group-80"):
        picture = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
        assert f"```text\n{picture}\n```" in page_text
