"""Substitutes for the simulator in tests of the pool."""

from __future__ import annotations

import os
import time

from tests.simulation.pool import Played


def play(seed: int) -> Played:
    """Play a seed: those from 900 up break a rule; 13 kills its worker, 14 hangs, 15 prints."""
    match seed:
        case 13:
            os._exit(7)
        case 14:
            time.sleep(600)
        case 15:
            print("{}")
    if seed >= 900:
        return Played(seed, 10, ("INV-1: gone", "INV-4: back"), ("INV-1", "INV-4"), story="once upon a time")
    return Played(seed, operations=len(os.environ["PYTHONHASHSEED"]) * 10)
