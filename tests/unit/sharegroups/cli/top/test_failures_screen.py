"""The dead letters of a group on the screen of `top`: what failed, why, and what to do."""

from __future__ import annotations

import pytest

from sharegroups.cli.top.views import Failures

from .pictures import StubSource, app_of, compare, text_of

pytestmark = pytest.mark.asyncio

NARROW, WIDE = (80, 24), (160, 24)


@pytest.mark.rule("CT-158")
@pytest.mark.parametrize(("size", "name"), [(NARROW, "failures-80"), (WIDE, "failures-160")])
async def test_what_failed_most_is_one_key_away(size: tuple[int, int], name: str) -> None:
    source = StubSource()
    async with app_of(source).run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press("x")
        await pilot.pause()
        compare(pilot, name)


@pytest.mark.rule("CT-158")
async def test_cause_and_reason_of_the_chosen_row_are_shown_without_another_key() -> None:
    """Letters without a reason are found by their cause; a reason that the table cuts, by what is left of it."""
    async with app_of(StubSource()).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("x")
        await pilot.pause()
        assert "Offset rejected by client.\nReason: ValueError: no such parcel\n" in text_of(pilot)
        assert "--reason\n'ValueError: no such parcel' --dry-run" in text_of(pilot)
        await pilot.press("down")
        await pilot.pause()
        assert "2 letters, the last of 2025-07-20T08:00:01Z: Offset delivery count exceeded" in text_of(pilot)
        assert "Reason: none was given" in text_of(pilot)
        assert "--cause\n'Offset delivery count exceeded the threshold.' --dry-run" in text_of(pilot)


class Letters(StubSource):
    """Has these letters, for a group whose name a shell would read."""

    def __init__(self, *rows: tuple[int, str, str, str], problem: str = "") -> None:
        super().__init__()
        self._found = Failures("g", "dlq", rows, sum(row[0] for row in rows), False, problem)

    async def failures(self, group: str) -> Failures:
        return self._found


@pytest.mark.rule("CT-158")
async def test_a_long_reason_leaves_the_commands_on_the_screen_and_is_found_by_its_beginning() -> None:
    source = Letters((3, "Offset rejected by client.", "E: " + "x" * 56 + "…", "-"), (1, "-", "(others)", "-"))
    async with app_of(source).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("x")
        await pilot.pause()
        shown = "".join(text_of(pilot).split())  # the lines of a command are broken anywhere
        assert "dlqredrive--groupbilling--since24h--reason'E:" + "x" * 56 + "'--dry-run" in shown
        await pilot.press("down")
        await pilot.pause()
        assert "redrive --group billing --since 24h --dry-run" in text_of(pilot), "they share nothing"


@pytest.mark.rule("CT-158")
async def test_without_letters_the_screen_says_what_to_do() -> None:
    for source, said in (
        (Letters(problem="It has no dead-letter topic."), "--add-config"),
        (Letters(), "No record was given up in the last 24 hours."),
    ):
        async with app_of(source).run_test(size=NARROW) as pilot:
            await pilot.pause()
            await pilot.press("x")
            await pilot.pause()
            assert said in text_of(pilot)
