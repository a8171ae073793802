"""Unit tests of the armed timer: when it fires, and that only an earlier time moves it."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from kip932.armed_timer import ArmedTimer
from tests.support.virtual_time import run as run_virtual


@pytest.mark.rule("P-13")
def test_only_an_earlier_time_moves_it_and_it_fires_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        began = loop.time()
        timer = ArmedTimer(lambda: fired.append(loop.time() - began))
        timer.arm(5_000, 5.0)
        armed = timer._handle
        timer.arm(9_000, 9.0)
        timer.arm(5_000, 5.0)
        assert (timer.at, timer._handle) == (5_000, armed)
        timer.arm(2_000, 2.0)
        assert timer.at == 2_000
        await asyncio.sleep(10)
        assert fired == [pytest.approx(2.0)]
        assert timer.at == inf
        timer.arm(11_000, -1.0)
        await asyncio.sleep(1)
        assert len(fired) == 2, "a time that is over is due now"

    run_virtual(main())


@pytest.mark.rule("P-13")
def test_it_may_be_armed_from_within_and_does_not_fire_once_cancelled() -> None:
    async def main() -> None:
        fired: list[float] = []

        def fire() -> None:
            fired.append(timer.at)
            if len(fired) < 3:
                timer.arm(len(fired), 1.0)

        timer = ArmedTimer(fire)
        timer.cancel()
        timer.arm(0, 1.0)
        await asyncio.sleep(10)
        assert fired == [inf, inf, inf]
        timer.arm(1, 1.0)
        timer.cancel()
        await asyncio.sleep(10)
        assert len(fired) == 3
        timer.arm(2, 1.0)
        await asyncio.sleep(2)
        assert len(fired) == 4, "armed again after a cancellation"

    run_virtual(main())


def test_a_far_time_is_checked_once_a_minute() -> None:
    """The loop's clock may stop while the machine is suspended; the owner's clock does not."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        began = loop.time()

        def fire() -> None:
            fired.append(loop.time() - began)
            if fired[-1] < 130:
                timer.arm(130, 130 - fired[-1])

        timer = ArmedTimer(fire)
        timer.arm(130, 130.0)
        await asyncio.sleep(200)
        assert fired == [pytest.approx(60), pytest.approx(120), pytest.approx(130)]

    run_virtual(main())
