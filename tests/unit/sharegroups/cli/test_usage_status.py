"""The exit status of a wrong command line: that of the tools, or that of the command that it is for."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sharegroups.cli.group import ToolGroup


class Own(click.Group):
    """A group whose users expect a different status."""

    usage_status = 2


@click.group(cls=ToolGroup)
def tools() -> None: ...


@tools.group(cls=Own)
def own() -> None: ...


@own.command("do")
@click.option("--number", type=int, required=True)
def own_do(number: int) -> None:
    if number < 0:
        raise click.UsageError("too small")


@tools.command("do")
@click.option("--number", type=int, required=True)
def tools_do(number: int) -> None: ...


@pytest.mark.rule("CT-29", "PM-39")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("do", 1),
        ("do --number x", 1),
        ("nothing", 1),
        ("own do", 2),
        ("own do --number x", 2),
        ("own do --number -1", 2),
        ("own nothing", 2),
        ("own do --number 3", 0),
    ],
)
def test_a_wrong_command_line_has_the_status_of_what_it_is_for(words: str, status: int) -> None:
    assert CliRunner().invoke(tools, words.split()).exit_code == status
