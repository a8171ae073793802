"""Fields, addresses and pages of lists."""

from __future__ import annotations

import pytest

from kip932.ids import OFFSET_MAX
from sharegroups.cli.groups.asking import refuse
from sharegroups.cli.output import UsageFailure, print_stderr
from sharegroups.console.sessions import Session
from sharegroups.console.tasks import Tasks
from sharegroups.console.visit import RefusedError, Visit, link, parts_of_commands, sliced


def visit(*fields: tuple[str, str]) -> Visit:
    return Visit(Session("u", {}, 0, 0), Tasks(lambda: 0), fields, "127.0.0.1", 0)


def test_addresses_have_what_is_given() -> None:
    assert link("/a") == "/a"
    assert link("/a", b="", c=None, d=0, e="x&y\u202e\udc80") == "/a?d=0&e=x%26y%E2%80%AE%3F"


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "٣", str(2**63), "9" * 20])
def test_numbers_are_checked(value: str) -> None:
    with pytest.raises(RefusedError, match="expected a whole number"):
        visit(("n", value)).number("n")


def test_numbers() -> None:
    assert visit(("n", " 7 ")).number("n") == 7
    assert visit(("n", str(OFFSET_MAX))).number("n") == OFFSET_MAX
    assert visit().number("n", 3) == 3


@pytest.mark.parametrize(("page", "first", "last"), [("0", 0, 10), ("2", 20, 25), ("9", 20, 25)])
def test_a_page_of_a_list(page: str, first: int, last: int) -> None:
    items, part = sliced(visit(("page", page)), list(range(25)), 10)
    assert list(items) == list(range(first, last))
    assert (part.first, part.last, part.has_next) == (first, last, last < 25)


def test_an_empty_list_has_one_page() -> None:
    items, part = sliced(visit(), [], 10)
    assert (list(items), part.first, part.last, part.has_next) == ([], 0, 0, False)


@pytest.mark.rule("CT-161")
def test_what_parts_of_commands_print_is_collected(capsys: pytest.CaptureFixture[str]) -> None:
    with parts_of_commands() as lines:
        print_stderr("Note: \x1b[31m")
    assert lines == [r"Note: \x1b[31m"]
    with pytest.raises(RefusedError, match=r"^no such group$"), parts_of_commands(["Note: first"]):
        refuse("no such group")
    with pytest.raises(RefusedError, match="wrong option"), parts_of_commands():
        raise UsageFailure("wrong option")
    with parts_of_commands() as lines:
        for number in range(500):
            print_stderr(str(number))
    assert len(lines) == 100
    assert capsys.readouterr() == ("", "")
    print_stderr("again")
    assert capsys.readouterr().err == "again\n"
