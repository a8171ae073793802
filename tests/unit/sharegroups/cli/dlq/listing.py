"""Runs `sharegroups dlq list` and returns its output as values."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ


def listed(*words: str, status: int = 0) -> list[dict[str, Any]]:
    result = sharegroups("dlq", "list", "--topic", DLQ, "--output", "json", *words)
    assert result.exit_code == status, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def places(*words: str) -> list[tuple[int, int]]:
    return [(one["partition"], one["offset"]) for one in listed(*words)]
