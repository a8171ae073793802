"""What the screens of `sharegroups top` have in common (CT-157, CT-159).

Each screen asks while it is the one that is shown, once per period, and never twice at a time. When the cluster does
not answer, the last figures stay, with their age and the reason, and it keeps asking. All text of others is escaped
before it gets here, and is never read as markup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Static

from kip932.errors import KafkaError
from kip932.printable import printable
from sharegroups.cli.top.views import Source
from sharegroups.insight.figures import duration

ViewT = TypeVar("ViewT")

#: The maximum number of rows in a table; a filter shows the others.
ROWS_MAX: Final = 200
#: How long one question to the cluster may take, in seconds.
ASK_S: Final = 10.0
#: What the keys of every screen do.
_HELP_OF_ALL: Final = "r asks now  Esc back  q quit  ? hides these lines"


class Around(NamedTuple):
    """What every screen needs: where to ask, how often in seconds (None: only on request), and a clock in seconds."""

    source: Source
    period_s: float | None
    clock: Callable[[], float]


class LiveScreen(Screen[None], Generic[ViewT]):
    """Asks for its view again and again while it is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back"),
        Binding("r", "now", "refresh"),
        Binding("question_mark,h", "help", "keys"),
    ]
    #: The last line of the screen, and the lines that `?` shows above it: each fits into 80 columns.
    keys_line: ClassVar[str] = "Esc back  r refresh  ? help  q quit"
    help_lines: ClassVar[Sequence[str]] = ()

    def __init__(self, around: Around) -> None:
        super().__init__()
        self.around = around
        self.view: ViewT | None = None
        self._answered_s: float | None = None
        self._reason = ""
        self._wake = asyncio.Event()

    async def ask(self) -> ViewT:
        """Return the newest view. Raises KafkaError."""
        raise NotImplementedError

    def show(self, view: ViewT) -> None:
        """Show a view."""
        raise NotImplementedError

    def headline(self, view: ViewT | None) -> str:
        """Return the first line of the screen, for the last view."""
        raise NotImplementedError

    def problems(self, view: ViewT) -> Sequence[str]:
        """Return what is missing from a view."""
        raise NotImplementedError

    def footer(self) -> ComposeResult:
        """Lay out the last lines of the screen."""
        found = Static(plain("\n".join((*self.help_lines, _HELP_OF_ALL))), id="help")
        found.display = False
        yield found
        yield Static(plain(self.keys_line), id="keys")

    def on_mount(self) -> None:
        """Show the age of the figures once a second. Textual calls it beside those of the subclasses."""
        self.set_interval(1.0, self.show_status)

    def on_screen_resume(self) -> None:
        """Begin to ask."""
        self.run_worker(self._follow(), group="follow", exclusive=True)

    def on_screen_suspend(self) -> None:
        """Stop asking, since another screen is shown."""
        self.workers.cancel_group(self, "follow")

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout(ASK_S):
                    self.view = await self.ask()
            except KafkaError as error:
                self._reason = f"{error.name}: {error.message}"
            except TimeoutError:
                self._reason = f"the cluster did not answer within {ASK_S:g} s"
            else:
                self._reason, self._answered_s = "", self.around.clock()
                self.show(self.view)
            self.show_status()
            try:
                async with asyncio.timeout(self.around.period_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def show_status(self) -> None:
        """Show the first line, and in the second one why figures are missing or old."""
        old = "" if self._answered_s is None else duration(int((self.around.clock() - self._answered_s) * 1_000))
        first = self.headline(self.view)
        if self._reason and self._answered_s is None:
            first, second = f"{first} · no figures yet", f"! {self._reason}"
        elif self._reason:
            first, second = f"{first} · figures are {old} old", f"! The cluster does not answer. {self._reason}"
        else:
            missing = () if self.view is None else self.problems(self.view)
            second = f"! {missing[0]}" if missing else ""
            second += f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        self.query_one("#status", Static).update(plain(first))
        self.query_one("#problem", Static).update(Text(printable(second), overflow="fold"))

    def action_back(self) -> None:
        """Go back to the screen before."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def action_help(self) -> None:
        """Show or hide the lines about keys and columns. The table gives them its room, so they cover nothing."""
        found = self.query_one("#help", Static)
        found.display = not found.display

    def action_now(self) -> None:
        """Ask now."""
        self._wake.set()


class TableScreen(LiveScreen[ViewT]):
    """A screen of one table, with all of the chosen row below it."""

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="status")
        yield Static(id="problem")
        yield DataTable(cursor_type="row", id="rows")
        yield Static(id="detail")
        yield from self.footer()

    def on_mount(self) -> None:
        """Give the keys to the table."""
        self.query_one("#rows", DataTable).focus()


def plain(text: str) -> Text:
    """Return text that is shown as it is, without markup."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def cells(texts: Sequence[str]) -> list[Text]:
    """Return the cells of one line of a table."""
    return [plain(text) for text in texts]
