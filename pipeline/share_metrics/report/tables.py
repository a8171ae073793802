"""Tables, and parts of the page that are folded, as HTML (PM-103). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from share_metrics.report.words import NONE, text

#: What a table without rows shows.
EMPTY: Final = '<p class="none">None.</p>'


class Columns(NamedTuple):
    """The columns of a table: their names, the first one of what a row is about. `name` is its class in the style."""

    name: str
    head: tuple[str, ...]


def table(columns: Columns, rows: Iterable[Sequence[Any]]) -> str:
    """A table, or a word that it has no rows. Values are escaped."""
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return framed(columns, body) if body else EMPTY


def framed(columns: Columns, body: str) -> str:
    """Rows that are HTML already, as a table that scrolls by itself where it is wider than the page."""
    top = "".join(f"<th>{text(name)}</th>" for name in columns.head)
    head = f"<thead><tr>{top}</tr></thead>"
    return f'<div class="wide"><table class="{columns.name}">{head}<tbody>{body}</tbody></table></div>'


def labels(columns: Columns) -> str:
    """The rules of style that name each value, for a narrow screen, where a row's values are below each other.

    The first column needs no name. Names of columns are this module's callers' own, not data.
    """
    return "".join(
        f'.{columns.name} td:nth-child({number})::before{{content:"{name}"}}'
        for number, name in enumerate(columns.head[1:], 2)
    )


def cell(value: Any) -> str:
    """A value as HTML: a dash for None, thousands separated."""
    if value is None:
        return NONE
    return f"{value:,}" if isinstance(value, int) else text(value)


def percent(ratio: float | None) -> str | None:
    """A ratio as a percentage."""
    return None if ratio is None else f"{ratio:.1%}".replace("%", "\N{NO-BREAK SPACE}%")


def of_more(rows: Sequence[Any], found: int) -> str:
    """A line that says that only some of the rows are shown, if that is so."""
    return f'<p class="dim">{len(rows):,} of {found:,} are shown.</p>' if found > len(rows) else ""


def fold(words: str, inner: str) -> str:
    """A part of the page that is folded until it is clicked on."""
    return f"<details><summary>{text(words)}</summary>{inner}</details>"


def dim(words: str) -> str:
    """A paragraph of explanation. `words` is HTML."""
    return f'<p class="dim">{words}</p>'
