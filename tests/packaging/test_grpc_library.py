"""Services and tools configure gRPC when they import it; the client library leaves its configuration alone (P-4)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest

from kip932.grpc_library import FORKLESS, POLLING, TESTED_RELEASE

CHOICES = {**POLLING, **FORKLESS}

#: Prints the environment when the import of grpc starts, and again at the end.
_PROGRAM = """
import importlib, os, sys

def say():
    print(*[os.environ.get(name) for name in {names!r}])

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            sys.meta_path.remove(self)
            say()

sys.meta_path.insert(0, Watch())
sys.argv = ["sharegroups", *{words!r}]
found = importlib.import_module({module!r})
if {words!r}:
    try:
        found.run()
    except SystemExit:
        pass
say()
"""


def imported(module: str, *words: str, **environment: str) -> list[str]:
    """Return the printed environments. `words`: arguments with which to run the module's command."""
    outside = {name: value for name, value in os.environ.items() if name not in CHOICES}
    program = _PROGRAM.format(names=list(CHOICES), module=module, words=list(words))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=outside | environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_the_release_in_use_is_one_that_this_was_tried_with() -> None:
    version = metadata.version("grpcio")
    assert version.startswith(TESTED_RELEASE), (
        f"grpcio is {version}: measure B4 and B5 with and without {CHOICES}, then say so"
    )


@pytest.mark.parametrize("module", ["share_node.node.serve", "share_node.commands"])
def test_they_are_chosen_while_grpc_is_imported_and_not_left_behind(module: str) -> None:
    assert imported(module) == [" ".join(CHOICES.values()), "None None"]


def test_the_echo_floor_chooses_nothing() -> None:
    assert imported("benchmarks.echo") == ["None None"] * 2


@pytest.mark.rule("CL-149")
def test_a_client_chooses_about_forks_alone_and_its_program_may_choose_otherwise() -> None:
    assert imported("sharegroups.aio") == ["None 0", "None None"]
    assert imported("sharegroups.aio", GRPC_ENABLE_FORK_SUPPORT="1") == ["None 1"] * 2


def test_who_has_chosen_keeps_his_choice() -> None:
    found = imported("share_node.node.serve", GRPC_EXPERIMENTS="-event_engine_dns", GRPC_ENABLE_FORK_SUPPORT="1")
    assert found == ["-event_engine_dns 1"] * 2


@pytest.mark.parametrize(
    ("command", "expected"),
    [("up", list(CHOICES.values())), ("topics", list(CHOICES.values())), ("worker", list(CHOICES.values()))],
)
def test_the_tools_choose_too(command: str, expected: list[str]) -> None:
    first, *_, last = imported("sharegroups.cli", command, "--help")
    assert (first, last) == (" ".join(expected), "None None")
