"""What others wrote, in every place that shows it, stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed
from tests.support.letters import copy_of, store

from .browser import OwnConsole, text_of
from .conftest import DLQ

EVIL = "</pre></td>\"'><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;t\x07\u202e\u2028{{ 7 * 191 }}"
NOT_SHOWN = ("\x1b", "\x07", "\u202e", "\u2028", "1337", "<script>alert", "<img")
#: What a form sends back is not changed; a browser shows it in a field of its own.
_FIELD = re.compile(r'<input [^>]*value="[^"]*"')
#: Ids are cut in strips and short texts; this is at the beginning of each.
SEEN = "&lt;/pre&gt;&lt;/td&gt;"


class _Tags(HTMLParser):
    """Finds what a browser would run or load."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        runs = tag in {"img", "iframe", "object", "style", "base"} or any(name.startswith("on") for name in given)
        script = tag == "script" and not (given.get("src") or "").startswith("/static/")
        away = any(not (given.get(name) or "/").startswith(("/", "#", "?")) for name in ("href", "action", "src"))
        if runs or script or away or "style" in given:
            self.wrong.append(str((tag, attrs)))


@pytest.fixture
def hostile(fake: FakeCluster) -> FakeCluster:
    """A cluster in which group, member, client, topic of a letter, reason, key, value and headers are hostile."""
    raw = EVIL.encode()
    fake.add_member(EVIL, EVIL)
    fake.add_topic("seen")
    store(fake, "seen", (raw, raw, [(EVIL, raw)], 1))
    consumed(fake, "seen", 0, 0)
    fake.explained[fake.partition("seen", 0)] = pb.ExplainRecordResponse(
        start_offset=0, end_offset=1, high_watermark=1, loaded=True, held_records=1, in_flight_offsets=1,
        max_record_locks=2_000, delivery_count_limit=5,
        records=[
            pb.ExplainRecordResponse.Record(
                first_offset=0, last_offset=0, state=pb.RECORD_STATE_ACQUIRED, obstacle=pb.DELIVERY_OBSTACLE_HELD,
                explanation=EVIL, delivery_count=2, member_id=EVIL, lock_remaining_ms=17_500, reason=EVIL,
                reason_delivery_count=1,
            )
        ],
    )  # fmt: skip
    letter = copy_of(3, raw, raw, [(EVIL, raw)], topic=EVIL, group=EVIL, cause=raw, reason=raw)
    store(fake, DLQ, letter, at_ms=1_700_000_200_000)
    return fake


@pytest.mark.rule("CT-161")
def test_texts_of_others_are_text_on_every_page(hostile: FakeCluster, browser: OwnConsole) -> None:
    group = quote(EVIL, safe="")
    pages = (
        "/", f"/?find={group}", f"/group?group={group}", "/group?group=g", f"/reset?group={group}",
        f"/explain?group={group}&topic=seen&offset=0", f"/configs?group={group}", "/records?topic=seen",
        "/record?topic=seen&offset=0", f"/dlq?find={group}", f"/dlq/letters?topic={DLQ}",
        f"/dlq/letters?topic={DLQ}&reason={group}&group={group}", f"/dlq/letter?topic={DLQ}&partition=0&offset=4",
    )  # fmt: skip
    for address in pages:
        page = browser.get(address)
        assert SEEN in page, (address, text_of(page))
        _check(address, page)
    counted = browser.until(f"/dlq/topic?topic={DLQ}", lambda page: "Counted to the end" in page)
    assert SEEN in counted
    _check("/dlq/topic", counted)
    for missing in (f"/topic?topic={group}", f"/letter?{group}", f"/dlq/letters?topic={group}"):
        _check(missing, browser.client.get(missing).text)


def _check(address: str, page: str) -> None:
    tags = _Tags()
    tags.feed(page)
    assert tags.wrong == [], address
    shown = _FIELD.sub("", page)
    assert [text for text in NOT_SHOWN if text in shown] == [], address
