"""What remains in a node's memory of topics and groups that were used and deleted: counted in objects, not in bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_BOUND_S = 900


@pytest.mark.rule("CM-183")
def test_topics_and_groups_that_were_deleted_leave_no_object_behind(tmp_path: Path) -> None:
    """Without this rule, each consumed group left its settings at the leader forever, for up to 10,000 groups."""
    words = [sys.executable, "-m", "tests.integration.share_node.counted_objects", str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=_BOUND_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4_000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == {}
