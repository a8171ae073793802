"""Topics' names in log lines, in place of their ids or beside the store's keys that hold them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import structlog

from kip932.ids import topic_id_text
from shard_runtime.logs import configure_logs
from shard_runtime.topic_names import TOPIC_NAMES, TopicNames

ORDERS, DASHES, UNKNOWN = b"o" * 16, b"\xff\xef\xbe" * 5 + b"\xfb", b"u" * 16
NAMES = {ORDERS: "orders", DASHES: "with.dashes"}
ID, DASHED, NOT_KNOWN = map(topic_id_text, (ORDERS, DASHES, UNKNOWN))


def named(**event: Any) -> dict[str, Any]:
    names = TopicNames()
    names.follow(lambda topic_id: NAMES.get(topic_id, ""))
    return dict(names(None, "info", dict(event)))


@pytest.mark.rule("CM-213")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ID}:0", "orders:0"),
        (f"{DASHED}:12", "with.dashes:12"),
        (f"group-1:{ID}:0", "group-1:orders:0"),
        (f"{ID}-3: leader epoch 1 is old", "orders-3: leader epoch 1 is old"),
        (f"{ID}:0 before 5, {DASHED}:1 before 6", "orders:0 before 5, with.dashes:1 before 6"),
        (f"{NOT_KNOWN}:0", f"{NOT_KNOWN}:0"),
        (f"a{ID}:0", f"a{ID}:0"),
        (
            "nothing of the kind, but long enough to be looked at",
            "nothing of the kind, but long enough to be looked at",
        ),
        ("not-base64-but-22-chars:0", "not-base64-but-22-chars:0"),
    ],
)
def test_a_partition_is_written_with_its_topics_name(text: str, expected: str) -> None:
    assert "-" in DASHED or "_" in DASHED
    assert named(cause=text) == {"cause": expected}


@pytest.mark.rule("CM-213")
def test_a_key_of_the_store_stays_as_it_is_and_the_name_is_beside_it() -> None:
    key = f"{{tp:{ID}:0}}:log"
    assert named(stream=key, offsets=3) == {"stream": key, "offsets": 3, "topic": "orders"}
    assert named(stream=key, partition=f"{ID}:0") == {"stream": key, "partition": "orders:0"}
    assert named(stream=key, topic="given") == {"stream": key, "topic": "given"}
    both = named(streams=[key, f"{{tp:{DASHED}:1}}:log"])
    assert both["topic"] == "orders, with.dashes"


@pytest.mark.rule("CM-213")
def test_an_id_beside_its_name_is_left_and_so_is_one_that_is_not_known() -> None:
    assert named(changed=f"orders ({ID}, 2 partitions)") == {"changed": f"orders ({ID}, 2 partitions)"}
    assert named(topic_id=ID) == {"topic_id": ID, "topic": "orders"}
    assert named(topic_id=NOT_KNOWN) == {"topic_id": NOT_KNOWN}


@pytest.mark.rule("CM-213")
def test_lists_are_named_and_other_values_untouched() -> None:
    found = named(partitions=(f"{ID}:0", 7), count=3, nothing=None)
    assert found == {"partitions": ["orders:0", 7], "count": 3, "nothing": None}


@pytest.mark.rule("CM-213")
def test_without_names_a_line_stays_as_it_is_and_only_their_owner_takes_them_away() -> None:
    names = TopicNames()
    line = {"cause": f"{ID}:0"}
    assert names(None, "info", dict(line)) == line

    def first(_topic_id: bytes) -> str:
        return "first"

    def second(_topic_id: bytes) -> str:
        return "second"

    names.follow(first)
    names.follow(second)
    names.forget(first)
    assert names(None, "info", dict(line)) == {"cause": "second:0"}
    names.forget(second)
    assert names(None, "info", dict(line)) == line


@pytest.mark.rule("CM-213")
def test_the_log_of_a_process_uses_them() -> None:
    out = io.StringIO()
    before = structlog.get_config()

    def names(_topic_id: bytes) -> str:
        return "orders"

    try:
        configure_logs("info", "json", out)
        TOPIC_NAMES.follow(names)
        structlog.get_logger("a test's").info("partition_led", partition=f"{ID}:4")
    finally:
        TOPIC_NAMES.forget(names)
        structlog.configure(**before)
    assert json.loads(out.getvalue())["partition"] == "orders:4"
