"""The words with which the CronJob of the page begins its process, as a shell runs them."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from share_metrics.commands import report, time_of

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/components/pipeline/cron-job.yaml"


@pytest.mark.rule("PM-61", "PM-72")
def test_the_page_of_the_last_hour_ends_now_not_at_the_newest_entry(tmp_path: Path) -> None:
    """Else the page is of the hour before everything stopped, however long ago that was."""
    job: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    now = datetime(2026, 11, 22, 10, 5, 7, tzinfo=UTC)
    stand_ins = {"sharegroups": 'printf "%s\\n" "$@"', "date": f'{which("date")} -d @{now.timestamp():.0f} "$@"'}
    for name, line in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    told = subprocess.run(
        [*container.get("command", ["sharegroups", "metrics"]), *container["args"]],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TZ": "Asia/Tokyo"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    group, word, *options = told.stdout.splitlines()
    assert (group, word) == ("metrics", report.name)
    assert options[: len(container["args"]) - 1] == container["args"][1:]
    given = report.make_context("report", options).params
    assert given["begin"] is None
    assert given["end"] is not None
    assert time_of(given["end"]) == now
