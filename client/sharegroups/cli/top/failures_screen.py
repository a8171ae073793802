"""The screen of `sharegroups top` for a group's dead letters (CT-158)."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any, Final

from rich.text import Text
from textual.widgets import DataTable, Static

from kip932.printable import printable
from sharegroups.cli.top.live_screen import ROWS_MAX, Around, TableScreen, cells, plain
from sharegroups.cli.top.views import Failures

#: The width from which on the table has room for what is also below it.
_WIDE: Final = 140
_WIDE_COLUMNS: Final = (("CAUSE", 46), ("LAST", 20))


class FailuresScreen(TableScreen[Failures]):
    """What failed most in the last 24 hours: a group's dead letters by cause and reason.

    Below the table is all of the chosen row, and the commands that show its letters and send them back.
    """

    keys_line = "↑ ↓ cause and reason below  Esc back  r read again  ? help  q quit"
    help_lines = (
        "↑ ↓ choose a row: below the table are its cause and its reason",
        "REASON: what the job raised, its first line; - if its member gave none,",
        "as when a lock ran out or the client sends no reasons",
    )

    def __init__(self, around: Around, group: str) -> None:
        super().__init__(around)
        self._group = group
        self._shown: Sequence[tuple[int, str, str, str]] = ()

    async def ask(self) -> Failures:
        """Read the letters once; they are read again only on request, since there may be many."""
        found = await self.around.source.failures(self._group)
        self.around = self.around._replace(period_s=None)
        return found

    def problems(self, view: Failures) -> Sequence[str]:
        """Return why there are none, or not all."""
        if view.problem:
            return (view.problem,)
        return ("Only the first of them are counted; dlq list --summary counts all.",) if view.is_cut else ()

    def headline(self, view: Failures | None) -> str:
        """Return how many dead letters there are."""
        name = f"Dead letters of group {printable(self._group)}"
        if view is None or view.problem:
            return name
        return f"{view.letters:,} dead letters in {printable(view.topic)}, 24 hours, group {printable(self._group)}"

    def show(self, view: Failures) -> None:
        """Fill the table."""
        table: DataTable[Any] = self.query_one("#rows", DataTable)
        self._shown = view.rows[:ROWS_MAX]
        chosen_line = table.cursor_row
        table.clear(columns=True)
        is_wide = self.size.width >= _WIDE
        room = max(self.size.width - (85 if is_wide else 13), 20)
        for name, width in (("LETTERS", 8), ("REASON", room), *_WIDE_COLUMNS[: 2 * is_wide]):
            table.add_column(plain(name), width=width)
        for count, cause, reason, last in self._shown:
            said = reason if reason != "-" or is_wide else f"- ({printable(cause)})"
            table.add_row(*cells([f"{count:,}".rjust(8), said, *[printable(cause), last][: 2 * is_wide]]))
        table.move_cursor(row=chosen_line, animate=False)
        self._show_detail()

    def on_data_table_row_highlighted(self) -> None:
        """Show all of the chosen row."""
        self._show_detail()

    def _show_detail(self) -> None:
        """Show the cause and the reason of the chosen row, and what to do next."""
        at = self.query_one("#rows", DataTable).cursor_row
        row = self._shown[at] if 0 <= at < len(self._shown) else None
        lines = _next_step(self._group, self.view) if row is None else _row_lines(self._group, *row)
        self.query_one("#detail", Static).update(Text("\n".join(map(printable, lines)), overflow="fold"))


def _row_lines(group: str, count: int, cause: str, reason: str, last: str) -> list[str]:
    said = "none was given" if reason == "-" else reason
    # A long reason is cut in the table. Without one, as with those of too many reasons, the cause is what they share.
    only = f"--cause {quote(cause)}" if reason == "-" else f"--reason {quote(reason.removesuffix('…'))}"
    of_them = f"--group {quote(group)} --since 24h" + (f" {only}" if cause != "-" else "")
    return [
        f"{count:,} letters, the last of {last}: {cause}",
        f"Reason: {said}",
        f"See them:       sharegroups dlq list {of_them}",
        f"Send them back: sharegroups dlq redrive {of_them} --dry-run",
    ]


def _next_step(group: str, view: Failures | None) -> list[str]:
    if view is None:
        return []
    if view.problem:
        return [
            f"What its jobs raise: sharegroups groups explain --group {quote(group)} --topic TOPIC:0",
            f"Keep what fails: sharegroups configs alter --group {quote(group)} --add-config "
            "errors.deadletterqueue.topic.name=dlq.NAME",
        ]
    return ["No record was given up in the last 24 hours."]
