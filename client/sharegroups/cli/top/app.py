"""The application of `sharegroups top`: it holds the screens, and needs Textual."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

from textual.app import App
from textual.binding import Binding, BindingType

from sharegroups.cli.interrupts import INTERRUPTED, TERMINATED
from sharegroups.cli.top.live_screen import Around
from sharegroups.cli.top.screens import GroupsScreen
from sharegroups.cli.top.views import Source

#: How often a screen asks, in seconds.
PERIOD_S: Final = 2.0


class TopApp(App[None]):
    """The screens over one source. It leaves the terminal as it was; `return_code` is the exit status."""

    CSS = """
    Static { height: auto; }
    #status, #keys, #legend { height: 1; }
    #problem { max-height: 3; min-height: 1; }
    #status { text-style: bold; }
    #rows { height: 1fr; }
    #detail { max-height: 6; }
    FailuresScreen #detail { max-height: 10; }
    #help { color: $text-muted; }
    #members { max-height: 6; }
    #text { height: 1fr; }
    Input { height: 1; border: none; padding: 0; }
    DataTable > .datatable--cursor { text-style: reverse; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q", "leave", "quit"),
        Binding("ctrl+c", "leave", "quit", priority=True),
    ]

    def __init__(
        self, source: Source, period_s: float | None = PERIOD_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._around = Around(source, period_s, clock)

    def on_mount(self) -> None:
        """Show all groups."""
        self.push_screen(GroupsScreen(self._around))

    def action_leave(self) -> None:
        """End the program."""
        self.exit(return_code=0)


async def shown(source: Source) -> int:
    """Run the screens until the user leaves or a signal ends them, and return the exit status."""
    app = TopApp(source)
    loop = asyncio.get_running_loop()
    for number, status in ((signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)):
        loop.add_signal_handler(number, partial(app.exit, return_code=status))
    await app.run_async(mouse=False)
    return app.return_code or 0
