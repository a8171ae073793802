"""What all screens of `top` do: figures of a cluster that does not answer, and help."""

from __future__ import annotations

import pytest

from sharegroups.cli.top.live_screen import LiveScreen
from sharegroups.cli.top.views import Overview
from sharegroups.errors import NetworkError
from sharegroups.insight.rows import rows_of
from tests.unit.sharegroups.insight.samples import groups, page, progress

from .pictures import Clock, StubSource, app_of, compare, text_of

pytestmark = pytest.mark.asyncio

NARROW = (80, 24)


@pytest.mark.rule("CT-157")
@pytest.mark.parametrize("keys", ["", "enter", "enter enter", "x", "m"], ids=str)
async def test_help_is_shown_in_lines_of_its_own_which_cover_nothing(keys: str) -> None:
    """At 80×24 on every screen: all lines fit, what the screen said is still there, and `?` hides them again. Of CT-157
    these two tests show (e)."""
    async with app_of(StubSource()).run_test(size=NARROW) as pilot:
        await pilot.pause()
        for key in keys.split():
            await pilot.press(key)
            await pilot.pause()
        before = text_of(pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        helped = text_of(pilot).splitlines()
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)
        said = [*screen.help_lines, "r asks now  Esc back  q quit  ? hides these lines", screen.keys_line]
        assert helped[-len(said) :] == said
        assert max(map(len, said)) <= NARROW[0]
        assert [line for line in before.splitlines() if line and line not in helped] == []
        await pilot.press("question_mark")
        await pilot.pause()
        assert text_of(pilot) == before


@pytest.mark.rule("CT-157")
async def test_the_help_of_all_groups() -> None:
    async with app_of(StubSource()).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        compare(pilot, "help-80")


@pytest.mark.rule("CT-159")
async def test_a_lost_cluster_leaves_the_last_figures_with_their_age_and_comes_back_by_itself() -> None:
    source, clock = StubSource(), Clock()
    async with app_of(source, clock).run_test(size=NARROW) as pilot:
        await pilot.pause()
        source.fails, clock.now_s = NetworkError("no node answers at 10.0.0.1:7932"), 14.0
        await pilot.press("r")
        await pilot.pause()
        compare(pilot, "lost")
        lag = progress("billing", "orders", lag=77, oldest_ms=1)
        source.fails = None
        source.all = Overview(rows_of(page(lag), groups(billing=1)), 0, ("Node 10.0.0.3:9092 did not answer.", "b"))
        await pilot.press("r")
        await pilot.pause()
        shown = text_of(pilot)
        assert "figures are" not in shown
        assert "! Node 10.0.0.3:9092 did not answer. (and 1 more)" in shown
        assert ("77" in shown, "mailer" in shown) == (True, False)
        source.all = source.all._replace(rows=rows_of(page(lag._replace(lag=78)), groups(billing=1)))
        await pilot.press("r")
        await pilot.pause()
        assert " 78 " in text_of(pilot), "a cell is changed in its place"


@pytest.mark.rule("CT-159")
async def test_a_cluster_that_does_not_answer_at_first_is_no_crash() -> None:
    source = StubSource()
    source.fails = NetworkError("nothing there")
    async with app_of(source).run_test(size=NARROW) as pilot:
        await pilot.pause()
        assert "no figures yet" in text_of(pilot)
        await pilot.press("enter", "x", "down", "slash", "z", "enter", "l")
        source.fails = None
        await pilot.press("escape", "r")
        await pilot.pause()
        assert "billing" in text_of(pilot)
