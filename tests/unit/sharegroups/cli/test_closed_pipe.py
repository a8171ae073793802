"""A command whose output is no longer read: `… | head -1`."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: The exit status that a shell reports for a program ended by SIGPIPE.
UNREAD = 141


def ends(program: str, *, both: bool = False) -> tuple[int, str]:
    """Return the status and standard error of a program whose standard output was closed by the reader; with `both`, so
    was its standard error."""
    words = [sys.executable, "-c", f"import sys\nimport sharegroups.cli\n{program}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        if both:
            process.stderr.close()
        reported = "" if both else process.stderr.read()
        return process.wait(60), reported


def words(*given: str) -> str:
    return f"sys.argv = ['sharegroups', *{given!r}]\nsharegroups.cli.run()"


STUB = """
from sharegroups.admin_values import ListGroupsResult, GroupListing
from sharegroups.cli import clients
class Admin:
    def __enter__(self): return self
    def __exit__(self, *_): print("closed", file=sys.stderr)
    def list_topics(self, names): return {}
    def list_groups(self, *_): return ListGroupsResult(GroupListing(f"g{n}", "", "share") for n in range(100_000))
clients.open_client = lambda *_: Admin()
"""


@pytest.mark.rule("CT-86")
@pytest.mark.parametrize("given", [("--help",), ("groups", "--help"), ("groups", "describe", "--help"), ("--version",)])
def test_help_that_is_not_read_ends_as_other_tools_do(given: tuple[str, ...]) -> None:
    assert ends(words(*given)) == (UNREAD, "")


@pytest.mark.rule("CT-86")
def test_a_command_cleans_up_and_ends_without_a_word() -> None:
    program = STUB + words("groups", "--list")
    assert ends(program) == (UNREAD, "closed\nclosed\n")
    assert ends(program, both=True)[0] == UNREAD


@pytest.mark.rule("CT-86")
def test_an_error_is_an_error_though_it_is_not_read() -> None:
    status, reported = ends(words("groups", "list", "--timeout", "0"))
    assert status == 1
    assert "'--timeout'" in reported
