"""Imports run without garbage collection, and so does the exit."""

from __future__ import annotations

import gc
import subprocess
import sys
from importlib import import_module

import pytest

from sharegroups.cli.quick_start import importing

#: Leaves a reference cycle whose finalizer prints if a garbage collection finds it; an earlier cycle is always found.
PROGRAM = """
from sharegroups.cli.quick_start import end_without_search
import gc
class Ring:
    def __init__(self, name): self.me, self.name = self, name
    def __del__(self): print("found", self.name)
Ring("early")
gc.collect()
{end}
gc.disable()
Ring("late")
"""


def test_inside_nothing_is_searched_and_behind_it_is_as_before() -> None:
    assert gc.isenabled()
    with importing():
        assert not gc.isenabled()
        with importing():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_as_before_behind_an_import_that_fails() -> None:
    with pytest.raises(ModuleNotFoundError), importing():
        import_module("no_such_module_anywhere")
    assert gc.isenabled()


@pytest.mark.parametrize(("end", "reported"), [("", ["early", "late"]), ("end_without_search()", ["early"])])
def test_a_process_ends_without_a_search(end: str, reported: list[str]) -> None:
    words = [sys.executable, "-c", PROGRAM.format(end=end)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.split("\n") == [*(f"found {name}" for name in reported), ""]
