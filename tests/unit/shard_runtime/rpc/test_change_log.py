"""Changes that clients make are logged in bounded lines, with the caller."""

from __future__ import annotations

import pytest
import structlog.testing

from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.change_log import NAMED_MAX, TEXT_MAX, log_changes

CALLER = CallContext("10.0.0.7", "c1", lambda: None, client_id="admin-1")


@pytest.mark.rule("CM-164")
def test_one_line_names_what_has_changed_and_who_asked() -> None:
    with structlog.testing.capture_logs() as lines:
        log_changes("topics_created", CALLER, ["a", "b"])
        log_changes("group_deleted", None, ["g"])
        log_changes("topics_deleted", CALLER, [])
    common = {"log_level": "info", "peer": "10.0.0.7", "client_id": "admin-1"}
    assert lines == [
        {"event": "topics_created", "changed": "a, b", "changes": 2, **common},
        {"event": "group_deleted", "changed": "g", "changes": 1, "log_level": "info", "peer": "", "client_id": ""},
    ]


@pytest.mark.rule("CM-164")
def test_a_large_request_leaves_a_short_line() -> None:
    with structlog.testing.capture_logs() as lines:
        log_changes("topics_created", CALLER, ["x" * 10_000] * 1_000)
    assert len(lines) == 1
    assert len(lines[0]["changed"]) < (NAMED_MAX + 1) * (TEXT_MAX + 5)
    assert lines[0]["changed"].endswith("and 980 more")
    assert lines[0]["changes"] == 1_000
