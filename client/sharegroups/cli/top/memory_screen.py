"""The screen of `sharegroups top` for what fills the memory (CT-158)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.text import Text
from textual.widgets import DataTable, Static

from kip932.printable import printable
from sharegroups.cli.top.live_screen import ROWS_MAX, TableScreen, cells, plain
from sharegroups.cli.top.views import Memory

#: How many store nodes are listed, the fullest first.
_STORES_SHOWN: Final = 4


class MemoryScreen(TableScreen[Memory]):
    """What fills the memory: the topics by their size, and what is left of each store node."""

    help_lines = (
        "BYTES: as sent, ~ estimated    OLDEST: when the first record left was stored",
        "Free some: a shorter retention.ms, or sharegroups topics delete-records",
    )

    async def ask(self) -> Memory:
        """Ask every leader once."""
        return await self.around.source.memory()

    def problems(self, view: Memory) -> Sequence[str]:
        """Return what is missing."""
        return view.problems

    def headline(self, view: Memory | None) -> str:
        """Return how many topics there are."""
        if view is None:
            return "Memory"
        more = len(view.topics) - ROWS_MAX
        return f"Memory: {len(view.topics):,} topics, the largest first" + (
            f" · … and {more:,} more" if more > 0 else ""
        )

    def show(self, view: Memory) -> None:
        """Fill the table, and say below what is left of the store."""
        table: DataTable[Any] = self.query_one("#rows", DataTable)
        chosen_line = table.cursor_row
        table.clear(columns=True)
        room = max(self.size.width - 66, 14)
        columns = ("TOPIC", room), ("PARTITIONS", 10), ("  RECORDS", 9), ("     BYTES", 10), ("OLDEST", 27)
        for name, width in columns:
            table.add_column(plain(name), width=width)
        for topic, partitions, records, size, oldest in view.topics[:ROWS_MAX]:
            table.add_row(*cells([printable(topic), f"{partitions:>10,}", records.rjust(9), size.rjust(10), oldest]))
        table.move_cursor(row=chosen_line, animate=False)
        stores = view.stores[:_STORES_SHOWN]
        lines = [f"Store {name}: {used} used, limit {limit}, left {left}" for name, used, limit, left in stores]
        said = "Bytes of topics are those sent; what groups' state takes is in the store's memory alone."
        self.query_one("#detail", Static).update(Text(printable("\n".join([*lines, said]), "\n"), overflow="fold"))
