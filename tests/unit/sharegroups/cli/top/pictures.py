"""The screens of `top` as plain text, compared with the files in `pictures`.

SHAREGROUPS_WRITE_TRANSCRIPTS=1 rewrites the files; review the changes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups.admin_values import (
    MemberDescription,
    Node,
    ReadRecord,
    RecordExplanation,
    RecordsExplained,
    ShareGroupDescription,
)
from sharegroups.cli.top.app import TopApp
from sharegroups.cli.top.views import Failures, GroupView, Memory, Overview, RecordView
from sharegroups.insight.rows import rows_of
from tests.unit.sharegroups.insight.samples import groups, page, progress

FOLDER = Path(__file__).with_name("pictures")
MIN = 60_000
ORDERS0 = TopicPartition("orders", 0)
ORDERS1 = TopicPartition("orders", 1)


def overview() -> Overview:
    """Return the groups of the pictures: one for each of the usual troubles, and one that keeps up."""
    return Overview(
        rows_of(
            page(
                progress(
                    "billing", "orders", lag=12_480, oldest_ms=125 * MIN, fetching=0, since_finish_ms=125 * MIN,
                    recent_arrived=42,
                ),
                progress(
                    "workers", "orders", lag=1_830, oldest_ms=40_000, in_flight=64, recent_arrived=800,
                    recent_finished=1_130, since_finish_ms=20,
                ),
                progress(
                    "mailer", "parcels", lag=41, oldest_ms=33 * MIN, in_flight=1, delayed=40, recent_arrived=3,
                    recent_finished=3, longest_member="w-7", longest_held_ms=31 * MIN,
                ),
                progress("audit", "orders", lag=0, archived=7, dead_letters=3, recent_arrived=800, recent_finished=800),
                progress(
                    "search", "orders", lag=9, oldest_ms=400, in_flight=9, recent_arrived=800, recent_finished=800,
                ),
            ),
            groups(audit=1, billing=0, mailer=1, nightly=0, search=2, workers=3),
        )
    )  # fmt: skip


def explained(offset: int | None = None) -> RecordsExplained:
    """Return a leader's answer: all records of the window, or one."""
    records: tuple[RecordExplanation, ...] = (
        RecordExplanation(100, 103, "acknowledged", "none", "They are finished."),
        RecordExplanation(
            104, 105, "acquired", "held", "Member w-7 holds it, for 21 more seconds.", 2, "w-7", "shop", "/10.0.0.7",
            lock_remaining_ms=21_000, append_time_ms=1_753_000_000_000, reason="ValueError: no such parcel",
            reason_delivery_count=1,
        ),
        RecordExplanation(
            106, 110, "available", "delayed", "It is delivered again in 30 s.", 1, delay_remaining_ms=30_000,
        ),
        RecordExplanation(111, 111, "archived", "delivery_limit", "It was delivered 5 times.", 5),
        RecordExplanation(112, 119, "available", "none", "It is delivered with the next fetch.", 0),
    )  # fmt: skip
    if offset is not None:
        records = tuple(each for each in records if each.first_offset <= offset <= each.last_offset)
    return RecordsExplained(
        "workers", ORDERS0, Node(2, "10.0.0.2", 7932), True, 100, 112, 0, 120, 12, 2_000, 5, 2, records, "Stable", 3, 2,
        in_flight=2,
    )  # fmt: skip


def group_view() -> GroupView:
    """Return a group with three members and two partitions, one of them in no leader's memory."""
    members = tuple(
        MemberDescription(f"w-{number}", "shop", f"/10.0.0.{number}", None, 4, ("orders",), {"orders": parts})
        for number, parts in ((7, (0,)), (8, (0,)), (9, (1,)))
    )
    description = ShareGroupDescription("workers", "Stable", 4, 4, "simple", members, Node(1, "10.0.0.1", 7932))
    row = progress(
        "workers", "orders", lag=15, oldest_ms=40_000, in_flight=2, delayed=5, archived=1, fetching=2
    )._replace(partition=0)
    return GroupView("workers", description, {ORDERS0: row, ORDERS1: None}, {ORDERS0: explained()})


class StubSource:
    """Answers from its attributes; while `fails` is set, every call raises it. `asked` has the calls."""

    def __init__(self) -> None:
        self.all = overview()
        self.fails: KafkaError | None = None
        self.asked: list[tuple[Any, ...]] = []

    async def overview(self) -> Overview:
        self._note("overview")
        return self.all

    async def group(self, group: str, partitions: Sequence[TopicPartition]) -> GroupView:
        self._note("group", group, *partitions)
        return group_view()

    async def record(self, group: str, partition: TopicPartition, offset: int | None) -> RecordView:
        self._note("record", group, partition, offset)
        offset = 104 if offset is None else offset
        record = ReadRecord(
            offset, 1_753_000_000_000, None, b"parcel-9", b'{"to": "[red]Oslo[/]"}', (("trace", b"\x1b"),)
        )
        return RecordView(explained(offset), offset, record if offset < 120 else None, "The log has no such record.")

    async def failures(self, group: str) -> Failures:
        self._note("failures", group)
        rows = [
            (41, "Offset rejected by client.", "ValueError: no such parcel", "2025-07-20T09:00:01Z"),
            (2, "Offset delivery count exceeded the threshold.", "-", "2025-07-20T08:00:01Z"),
        ]
        return Failures(group, "dlq.orders", rows, 43, is_cut=False)

    async def memory(self) -> Memory:
        self._note("memory")
        topics = [
            ("orders", 12, "1204311", "412 MiB", "2025-07-20T06:00:01Z (3 h)"),
            ("parcels-[red]", 1, "40", "~3 KiB", "-"),
        ]
        return Memory([("10.0.0.9:6379", "601 MiB", "1 GiB", "423 MiB (58% used)")], topics)

    def _note(self, *call: Any) -> None:
        self.asked.append(call)
        if self.fails is not None:
            raise self.fails


class Clock:
    """A clock that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def app_of(source: StubSource, clock: Clock | None = None) -> TopApp:
    """Return the screens over a source, which they ask when they are shown and when `r` is pressed."""
    return TopApp(source, None, clock or Clock())


def text_of(pilot: Pilot[None]) -> str:
    """Return what the screen shows, line by line, without blanks at the ends."""
    strips = pilot.app.screen._compositor.render_strips()  # Textual has no public way but pictures
    return "".join("".join(segment.text for segment in strip).rstrip() + "\n" for strip in strips)


def compare(pilot: Pilot[None], name: str) -> None:
    """Assert that the screen shows exactly what the picture has."""
    compare_text(text_of(pilot), name)


def compare_text(text: str, name: str) -> None:
    """Assert that a text is exactly what the picture has."""
    file = FOLDER / f"{name}.txt"
    if os.environ.get("SHAREGROUPS_WRITE_TRANSCRIPTS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
