"""The screens of `sharegroups top`: all groups, one group, one record (CT-157, CT-158)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Input, Static

from kip932.ids import OFFSET_MAX, TopicPartition
from kip932.printable import printable
from sharegroups.cli.groups.explain import position_lines, record_lines
from sharegroups.cli.record_text import content_lines
from sharegroups.cli.top.cluster_source import STRIPS_MAX
from sharegroups.cli.top.failures_screen import FailuresScreen
from sharegroups.cli.top.live_screen import ROWS_MAX, Around, LiveScreen, cells, plain
from sharegroups.cli.top.memory_screen import MemoryScreen
from sharegroups.cli.top.views import GroupView, Overview, RecordView
from sharegroups.insight.columns import ORDERS, cell, chosen, detail, fitting
from sharegroups.insight.figures import UNKNOWN, Count
from sharegroups.insight.rows import Row
from sharegroups.insight.strips import holders, legend, strip

#: How many members and holders are listed.
MEMBERS_SHOWN: Final = 5
HOLDERS_SHOWN: Final = 3
#: The width of a partition's name, of all that is beside its strip, and the smallest one of the strip.
_NAME: Final = 16
_BESIDE_STRIP: Final = 52
_STRIP_AT_LEAST: Final = 16


class _Drawn(NamedTuple):
    """What a table shows: for which width, the group and topic of each line, and the texts of its cells."""

    width: int
    names: list[tuple[str, str]]
    texts: list[list[str]]


class GroupsScreen(LiveScreen[Overview]):
    """All groups and topics, the worst first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"order('{key}')", order.name) for key, order in ORDERS.items()),
        Binding("slash", "filter", "filter"),
        Binding("x", "failures", "dead letters"),
        Binding("m", "memory", "memory"),
    ]
    keys_line = "Enter group  x letters  m memory  / filter  l o a f t n order  ? help  q quit"
    help_lines = (
        "Order: l largest lag, o oldest record, a arriving, f finishing, t time to drain,",
        "n name    / only rows with these words: group, topic or reason",
        "Enter: members, partitions and records    x: what failed, why    m: memory",
        "WHY: no member = start one; handlers busy = add workers; held = that member",
        "has had a record for so long    ? not known    ≥ at least, a part is missing",
    )

    def __init__(self, around: Around) -> None:
        super().__init__(around)
        self._order = "l"
        self._words = ""
        self._shown: list[Row] = []
        self._matching = 0
        self._drawn = _Drawn(0, [], [])

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="status")
        yield Static(id="problem")
        yield DataTable(cursor_type="row", zebra_stripes=False, id="rows")
        yield Static(id="detail")
        yield Input(placeholder="group, topic or reason; Enter keeps it, Esc clears it", id="filter")
        yield from self.footer()

    def on_mount(self) -> None:
        """Hide the filter, and give the keys to the table."""
        self.query_one("#filter", Input).display = False
        self.query_one("#rows", DataTable).focus()

    async def ask(self) -> Overview:
        """Ask every node once."""
        return await self.around.source.overview()

    def problems(self, view: Overview) -> Sequence[str]:
        """Return what is missing."""
        return view.problems

    def headline(self, view: Overview | None) -> str:
        """Return how many rows there are and how they are sorted."""
        if view is None:
            return "sharegroups top"
        behind = sum(bool(row.lag.value) for row in view.rows)
        more = self._matching - len(self._shown)
        hidden = f" · … and {more:,} more, / filters" if more else ""
        left_out = f" · {view.left_out:,} rows left out by their leaders" if view.left_out else ""
        words = f" · only “{printable(self._words)}”: {self._matching:,}" if self._words else ""
        order = ORDERS[self._order].name
        return f"{len(view.rows):,} rows, {behind:,} with a lag · {order} first{words}{hidden}{left_out}"

    def show(self, view: Overview) -> None:
        """Fill the table, and keep the chosen row."""
        table: DataTable[Text] = self.query_one("#rows", DataTable)
        before = self._chosen_row()
        found = chosen(view.rows, ORDERS[self._order], self._words)
        self._matching, self._shown = len(found), found[:ROWS_MAX]
        width = self.size.width or 80
        columns = fitting(width)
        names = [(row.group, row.topic) for row in self._shown]
        drawn = _Drawn(width, names, [[cell(column, own, row) for column, own in columns] for row in self._shown])
        if (drawn.width, drawn.names) == (self._drawn.width, self._drawn.names):
            self._redraw(table, drawn)
        else:
            table.clear(columns=True)
            for column, own in columns:
                table.add_column(plain(column.name.rjust(own) if column.is_figure else column.name), width=own)
            for texts in drawn.texts:
                table.add_row(*cells(texts))
            if before is not None and (before.group, before.topic) in names:
                table.move_cursor(row=names.index((before.group, before.topic)), animate=False)
        self._drawn = drawn
        self._show_detail()
        self.show_status()

    def _redraw(self, table: DataTable[Text], drawn: _Drawn) -> None:
        """Change the cells that have another text now, which costs less than to make all of them, and keeps the view
        where it is."""
        for line, (old, new) in enumerate(zip(self._drawn.texts, drawn.texts, strict=True)):
            for number, text in enumerate(new):
                if text != old[number]:
                    table.update_cell_at(Coordinate(line, number), plain(text))

    def _chosen_row(self) -> Row | None:
        at = self.query_one("#rows", DataTable).cursor_row
        return self._shown[at] if 0 <= at < len(self._shown) else None

    def _show_detail(self) -> None:
        row = self._chosen_row()
        text = "There is no group, or none that this user may see." if not self._words else "No row matches."
        lines = detail(row) if row is not None else (text,) if self.view is not None else ()
        self.query_one("#detail", Static).update(Text("\n".join(lines), overflow="fold"))

    def on_resize(self) -> None:
        """Choose the columns that fit now."""
        if self.view is not None:
            self.show(self.view)

    def on_data_table_row_highlighted(self) -> None:
        """Show all of the chosen row."""
        self._show_detail()

    def on_data_table_row_selected(self) -> None:
        """Show the chosen group."""
        row = self._chosen_row()
        if row is not None:
            self.app.push_screen(GroupScreen(self.around, row.group, row.topic))

    def action_order(self, key: str) -> None:
        """Sort the rows in another order, and go to the first one."""
        self._order = key
        if self.view is not None:
            self._shown = []
            self.show(self.view)

    def action_filter(self) -> None:
        """Ask for the words of a filter."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._words = event.value
        if self.view is not None:
            self.show(self.view)

    def on_input_submitted(self) -> None:
        """Keep the filter, and give the keys back to the table."""
        self.query_one("#filter", Input).display = bool(self._words)
        self.query_one("#rows", DataTable).focus()

    def action_back(self) -> None:
        """Clear the filter; there is no screen before this one."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one("#rows", DataTable).focus()

    def action_failures(self) -> None:
        """Show the dead letters of the chosen group."""
        row = self._chosen_row()
        if row is not None:
            self.app.push_screen(FailuresScreen(self.around, row.group))

    def action_memory(self) -> None:
        """Show what fills the store."""
        self.app.push_screen(MemoryScreen(self.around))


class GroupScreen(LiveScreen[GroupView]):
    """One group: members, assignment, and the strip of each share-partition."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "failures", "dead letters")]
    keys_line = "Enter record  x dead letters  Esc back  r refresh  ? help  q quit"
    help_lines = (
        "↑ ↓ choose a partition: below the table are its counts, and who holds what",
        "Enter: its first unfinished record, why it waits, and what it says",
        "x: the group's dead letters by reason    strip: one character per record",
    )

    def __init__(self, around: Around, group: str, topic: str) -> None:
        super().__init__(around)
        self._group = group
        self._topic = topic
        self._parts: list[TopicPartition] = []
        self._room = _STRIP_AT_LEAST

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="status")
        yield Static(id="problem")
        yield Static(id="members")
        yield DataTable(cursor_type="row", id="rows")
        yield Static(id="detail")
        yield Static(plain(legend()), id="legend")
        yield from self.footer()

    def on_mount(self) -> None:
        """Give the keys to the table."""
        self.query_one("#rows", DataTable).focus()

    async def ask(self) -> GroupView:
        """Ask for the group, and for the records of the partitions around the chosen one."""
        found = await self.around.source.group(self._group, self._around_cursor())
        if not self._parts and found.progress:  # now it is known which partitions there are
            self._parts = self._first_of_topic(found)
            found = await self.around.source.group(self._group, self._around_cursor())
        return found

    def _first_of_topic(self, view: GroupView) -> list[TopicPartition]:
        return sorted(view.progress, key=lambda each: (each.topic != self._topic, each))

    def _around_cursor(self) -> list[TopicPartition]:
        at = self.query_one("#rows", DataTable).cursor_row
        first = max(0, min(at - STRIPS_MAX // 2, len(self._parts) - STRIPS_MAX))
        return self._parts[first : first + STRIPS_MAX]

    def problems(self, view: GroupView) -> Sequence[str]:
        """Return what is missing."""
        return view.problems

    def headline(self, view: GroupView | None) -> str:
        """Return the group's state, members and coordinator."""
        name = f"Group {printable(self._group)}"
        known = None if view is None else view.description
        if known is None:
            return name
        many = f"{len(known.members)} member{'' if len(known.members) == 1 else 's'}"
        node = known.coordinator
        where = "" if node is None else f", coordinator {node.node_id} ({printable(node.host)}:{node.port})"
        return f"{name}: {known.state}, {many}{where}"

    def show(self, view: GroupView) -> None:
        """Fill the members and the table of partitions."""
        self.query_one("#members", Static).update(Text("\n".join(_member_lines(view)), no_wrap=True))
        table: DataTable[Text] = self.query_one("#rows", DataTable)
        at = table.cursor_row
        self._parts = self._first_of_topic(view)[:ROWS_MAX]
        room = max(self.size.width - _BESIDE_STRIP, _STRIP_AT_LEAST)
        table.clear(columns=True)
        for name, width in (("PARTITION", _NAME), ("LEADER", 6), ("LAG", 8), ("OLDEST", 11)):
            table.add_column(plain(name if name == "PARTITION" else name.rjust(width)), width=width)
        table.add_column(plain("FROM THE START OFFSET ON"), width=room)
        self._room = room
        for part in self._parts:
            table.add_row(*cells(_partitioncells(view, part, room)))
        table.move_cursor(row=min(at, max(len(self._parts) - 1, 0)), animate=False)
        self._show_detail()

    def on_data_table_row_highlighted(self) -> None:
        """Show all of the chosen partition."""
        self._show_detail()

    def _chosen_part(self) -> TopicPartition | None:
        at = self.query_one("#rows", DataTable).cursor_row
        return self._parts[at] if 0 <= at < len(self._parts) else None

    def _show_detail(self) -> None:
        part = self._chosen_part()
        lines: list[str] = []
        if self.view is not None and part is not None:
            lines = _partition_lines(self.view, part, self._room)
        elif self.view is not None:
            lines = ["It has not started on any partition, as far as its leaders know."]
        self.query_one("#detail", Static).update(Text("\n".join(lines), overflow="fold"))

    def on_data_table_row_selected(self) -> None:
        """Show the first record of the chosen partition that is not finished."""
        part = self._chosen_part()
        if part is not None:
            self.app.push_screen(RecordScreen(self.around, self._group, part))

    def action_failures(self) -> None:
        """Show the group's dead letters."""
        self.app.push_screen(FailuresScreen(self.around, self._group))


def _member_lines(view: GroupView) -> list[str]:
    known = view.description
    if known is None:
        return ["Its members are not known."]
    lines = []
    for member in known.members[:MEMBERS_SHOWN]:
        parts = "; ".join(
            f"{printable(topic)}:{','.join(map(str, sorted(numbers)))}"
            for topic, numbers in sorted(member.assignment.items())
        )
        client = printable(member.client_id) or "no client.id"
        host = printable(member.client_host.lstrip("/"))
        lines.append(f"  {printable(member.member_id)}  {client} at {host}  {parts or '-'}")
    more = len(known.members) - MEMBERS_SHOWN
    return lines + ([f"  … and {more} more: sharegroups groups describe --members"] if more > 0 else [])


def _partitioncells(view: GroupView, part: TopicPartition, room: int) -> list[str]:
    progress, answer = view.progress[part], view.explained.get(part)
    name = f"{printable(part.topic)}-{part.partition}"
    lag = Count(None if progress is None else progress.lag)
    oldest = UNKNOWN if progress is None else Count(progress.oldest_ms).age_text if lag.value else "-"
    text = "" if answer is None else strip(answer, room)[0]
    return [
        name if len(name) <= _NAME else f"…{name[1 - _NAME :]}",
        (UNKNOWN if answer is None else str(answer.leader.node_id)).rjust(6),
        lag.text.rjust(8),
        oldest.rjust(11),
        text or ("nothing left" if lag.value == 0 else ""),
    ]


def _partition_lines(view: GroupView, part: TopicPartition, room: int) -> list[str]:
    progress, answer = view.progress[part], view.explained.get(part)
    name = f"{printable(part.topic)}-{part.partition}"
    if progress is None:
        lines = [f"{name}: no leader knows of it yet"]
    else:
        counts = (("in flight", progress.in_flight), ("delayed", progress.delayed), ("archived", progress.archived))
        listed = ", ".join(f"{what} {count:,}" for what, count in counts)
        lines = [f"{name}: {listed}, letters to write {progress.dead_letters:,}, sessions {progress.fetching}"]
    if answer is not None:
        start = "not set" if answer.start_offset is None else answer.start_offset
        lines.append(
            f"led by node {answer.leader.node_id} ({printable(answer.leader.host)}:{answer.leader.port}), start "
            f"offset {start}, log {answer.log_start_offset} to {answer.high_watermark}"
        )
        _, each = strip(answer, room)
        lines += [f"each character is {each} records"] if each > 1 else []
        held = list(holders(answer))
        lines += held[:HOLDERS_SHOWN]
        lines += [f"… and {len(held) - HOLDERS_SHOWN} more"] if len(held) > HOLDERS_SHOWN else []
    return lines


class RecordScreen(LiveScreen[RecordView]):
    """One record for a group: why it is, or is not, delivered, and what it says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "the record before"),
        Binding("right", "step(1)", "the next record"),
        Binding("o", "offset", "another offset"),
    ]
    keys_line = "← → records  o offset  ↑ ↓ scroll  Esc back  r refresh  ? help  q quit"
    help_lines = ("← → the record before and after    o: type an offset, then Enter",)

    def __init__(self, around: Around, group: str, partition: TopicPartition) -> None:
        super().__init__(around)
        self._group = group
        self._partition = partition
        self._offset: int | None = None

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="status")
        yield Static(id="problem")
        with VerticalScroll(id="text"):
            yield Static(id="record")
        yield Input(placeholder="offset", type="integer", id="offset")
        yield from self.footer()

    def on_mount(self) -> None:
        """Hide the question for an offset."""
        self.query_one("#offset", Input).display = False
        self.query_one("#text").focus()

    async def ask(self) -> RecordView:
        """Ask for the record."""
        found = await self.around.source.record(self._group, self._partition, self._offset)
        if self._offset is None:
            self._offset = found.offset
        return found

    def problems(self, view: RecordView) -> Sequence[str]:
        """Return what is missing."""
        error = view.answer.group_error
        return () if error is None else (f"The group's members are not known: {error.message}",)

    def headline(self, view: RecordView | None) -> str:
        """Return which record it is."""
        name = f"{printable(self._partition.topic)}-{self._partition.partition}"
        return f"Record {'' if self._offset is None else self._offset} of {name}, for group {printable(self._group)}"

    def show(self, view: RecordView) -> None:
        """Show the explanation, then the content."""
        if view.offset != self._offset:  # another one is wanted by now
            return
        lines = [*position_lines(view.answer), ""]
        for record in view.answer.records:
            lines += record_lines(record)
        lines.append("")
        lines += [view.problem] if view.record is None else content_lines(view.record, view.record.headers)
        self.query_one("#record", Static).update(Text("\n".join(printable(line) for line in lines), overflow="fold"))

    def _go(self, offset: int) -> None:
        self._offset = max(0, min(offset, OFFSET_MAX))
        self.query_one("#record", Static).update("")
        self.show_status()
        self.action_now()

    def action_step(self, count: int) -> None:
        """Go to a neighbour."""
        if self._offset is not None:
            self._go(self._offset + count)

    def action_offset(self) -> None:
        """Ask for an offset."""
        field = self.query_one("#offset", Input)
        field.value = ""
        field.display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the offset."""
        self.query_one("#offset", Input).display = False
        self.query_one("#text").focus()
        if event.value.isascii() and event.value.isdecimal():
            self._go(int(event.value))

    def action_back(self) -> None:
        """Close the question for an offset, or the screen."""
        field = self.query_one("#offset", Input)
        if field.display:
            field.display = False
            self.query_one("#text").focus()
        else:
            super().action_back()
