"""The columns of `sharegroups top`: what fits into a width, and by what rows can be sorted (CT-157)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kip932.printable import printable
from sharegroups.insight.rows import NONE, Row, worst_first


class Column(NamedTuple):
    """A column: its header, its smallest width, and its text for a row. `is_figure`: aligned to the right."""

    name: str
    width: int
    text: Callable[[Row], str]
    is_figure: bool = True


GROUP: Final = Column("GROUP", 14, lambda row: printable(row.group), is_figure=False)
TOPIC: Final = Column("TOPIC", 11, lambda row: printable(row.topic) or NONE, is_figure=False)
LAG: Final = Column("LAG", 8, lambda row: row.lag.text)
OLDEST: Final = Column("OLDEST", 11, lambda row: row.oldest_text)
ARRIVING: Final = Column("ARRIVING/s", 10, lambda row: row.arriving.text)
FINISHING: Final = Column("FINISHING/s", 11, lambda row: row.finishing.text)
DRAINED_IN: Final = Column("DRAINED-IN", 18, lambda row: row.drained.text)
IN_FLIGHT: Final = Column("IN-FLIGHT", 9, lambda row: row.in_flight.text)
DELAYED: Final = Column("DELAYED", 7, lambda row: row.delayed.text)
GIVEN_UP: Final = Column("GIVEN-UP", 8, lambda row: row.given_up.text)
UNWRITTEN: Final = Column("UNWRITTEN", 9, lambda row: row.dead_letters.text)
MEMBERS: Final = Column("MEMBERS", 7, lambda row: row.members.text)
WHY: Final = Column("WHY", 22, lambda row: row.why, is_figure=False)

ALL: Final = (
    GROUP, TOPIC, LAG, OLDEST, ARRIVING, FINISHING, DRAINED_IN, IN_FLIGHT, DELAYED, GIVEN_UP, UNWRITTEN, MEMBERS, WHY,
)  # fmt: skip
_ALWAYS: Final = (GROUP, TOPIC, LAG, OLDEST, WHY)
#: The others, in the order in which they get their place when the screen is wide enough.
_IF_ROOM: Final = (DRAINED_IN, MEMBERS, GIVEN_UP, FINISHING, ARRIVING, IN_FLIGHT, DELAYED, UNWRITTEN)
#: What a column takes in addition to its text.
GAP: Final = 2


def fitting(width: int) -> list[tuple[Column, int]]:
    """Return the columns that fit into a width, each with its own; the names and the reason share what is left."""
    chosen = list(_ALWAYS)
    left = width - sum(column.width + GAP for column in chosen)
    for column in _IF_ROOM:
        if left < column.width + GAP:
            break
        chosen.append(column)
        left -= column.width + GAP
    left = max(left, 0)
    shares = {TOPIC: left // 4, GROUP: left // 4}
    shares[WHY] = left - sum(shares.values())
    return [(column, column.width + shares.get(column, 0)) for column in ALL if column in chosen]


def cell(column: Column, width: int, row: Row) -> str:
    """Return a row's text for a column, cut to its width."""
    text = column.text(row)
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    return text.rjust(width) if column.is_figure else text


class Order(NamedTuple):
    """An order of rows; `name` says what comes first."""

    name: str
    key: Callable[[Row], object]


def _most(figure: Callable[[Row], float | None]) -> Callable[[Row], object]:
    def key(row: Row) -> object:
        value = figure(row)
        return (value is None, -(value or 0), worst_first(row))

    return key


def _drained_last(row: Row) -> object:
    drained = row.drained
    is_unknown = drained.in_ms is None and not drained.steady
    kind = 0 if drained.never else 1 if drained.in_ms else 2 if is_unknown else 3
    return (kind, -(drained.in_ms or 0), worst_first(row))


#: The sort orders, by the key that selects them.
ORDERS: Final = {
    "l": Order("largest lag", worst_first),
    "o": Order("oldest record", _most(lambda row: row.oldest_ms.value)),
    "a": Order("most arriving", _most(lambda row: row.arriving.per_s)),
    "f": Order("most finishing", _most(lambda row: row.finishing.per_s)),
    "t": Order("longest to drain", _drained_last),
    "n": Order("name", lambda row: (row.group, row.topic)),
}


def chosen(rows: Iterable[Row], order: Order, words: str) -> list[Row]:
    """Return the rows whose group, topic or reason has the words in it, in this order."""
    wanted = words.strip().casefold()
    found = (row for row in rows if not wanted or wanted in _searched(row))
    return sorted(found, key=order.key)  # type: ignore[arg-type] # the keys of one order compare with each other


def _searched(row: Row) -> str:
    return "\n".join((row.group, row.topic, row.why)).casefold()


def detail(row: Row) -> Sequence[str]:
    """Return all of a row in three lines, for a screen that has no room for every column."""
    figures = (
        f"lag {row.lag.text}, oldest {row.oldest_text}, arriving {row.arriving.text}/s, finishing "
        f"{row.finishing.text}/s, to drain: {row.drained.text}"
    )
    rest = (
        f"in flight {row.in_flight.text}, delayed {row.delayed.text}, given up {row.given_up.text} (letters to write "
        f"{row.dead_letters.text}), members {row.members.text}{f' ({row.state})' if row.state else ''}"
    )
    return (f"{GROUP.text(row)} · {TOPIC.text(row)}: {row.why}", figures, rest)
