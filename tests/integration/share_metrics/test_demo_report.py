"""`make report` on a demo: the page shows the numbers that the demo itself counted, without the pipeline."""

from __future__ import annotations

import io
import json
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import share_metrics.report
from share_metrics.report import Report, render
from share_metrics.report import totals as report_totals
from share_node.demo.command import CLUSTER_DATA
from tools.report import demo_store, main

from .world import SHAREGROUPS

BOUND_S = 300


class Played:
    """A demo that has ended: its data directory, and the numbers that it counted itself."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        # Undecodable lines are rejected. Two partitions, four workers, one of them killed.
        lines = [b"\xff\xfe\n" if number % 20 == 7 else b"line %d\n" % number for number in range(300)]
        (keep / "input.txt").write_bytes(b"".join(lines))
        command = [SHAREGROUPS, "demo", "--keep", str(keep), "--output", "json"]
        done = subprocess.run(
            [*command, "--input", str(keep / "input.txt")], capture_output=True, text=True, timeout=BOUND_S, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        self.account: dict[str, Any] = json.loads(done.stdout)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played(tmp_path_factory.mktemp("demo"))


class Reported:
    """The result of `make report`: the page, the output, and the page's totals."""

    def __init__(self, played: Played, out: Path) -> None:
        self.out = out
        totals: list[dict[str, int]] = []

        def kept(report: Report) -> str:
            totals.append(report_totals(report))
            return render(report)

        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patched, redirect_stdout(said):
            patched.setattr(share_metrics.report, "render", kept)
            self.status = main(["--demo", str(played.keep), "--out", str(out)])
        self.said = said.getvalue().splitlines()
        (self.totals,) = totals


@pytest.fixture(scope="module")
def reported(spark: SparkSession, played: Played) -> Reported:
    return Reported(played, played.keep / "report.html")


@pytest.mark.rule("PM-37", "PM-39")
def test_one_command_makes_the_page_of_a_demo(reported: Reported) -> None:
    assert reported.status == 0
    assert reported.said[-1] == str(reported.out)
    assert "finished in each second, at most" in reported.out.read_text()


@pytest.mark.rule("PM-37", "PM-39", "PM-41", "PM-44", "CM-71")
def test_the_page_has_the_numbers_of_the_demos_own_account(played: Played, reported: Reported) -> None:
    found = reported.totals
    account = played.account
    assert account["produced"] == 300
    assert account["rejected"] == account["letters"] == 15
    assert account["failed"] > 0
    names = {"finished": "produced", "accepted": "accepted", "rejected": "rejected"}
    assert {name: found[name] for name in names} == {name: account[own] for name, own in names.items()}
    redelivered = account["redelivered"]
    assert 0 < found["redelivered_lb"] <= redelivered  # writes that also contain dead letters are left out (PM-46)
    assert (found["lag"], found["lost"], found["share_partitions"]) == (0, 0, 2)
    assert found["poison"] >= 15
    page = reported.out.read_text()
    assert page.count("<td>rejected</td>") == 15, "each of them is listed, with its reason"
    assert f"<b>{account['produced']:,}</b> records finished" in page
    assert f"{account['accepted']:,} accepted, {found['released']:,} released, {account['rejected']:,} rejected" in page


def test_the_store_of_a_running_demo_is_read_as_it_is(played: Played) -> None:
    with demo_store(played.keep / CLUSTER_DATA) as started, demo_store(played.keep / CLUSTER_DATA) as running:
        assert running == started
    with demo_store(played.keep / CLUSTER_DATA) as again:
        assert again != started


def test_without_a_demo_one_line_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--demo", str(tmp_path)]) == 1
    assert "run `make demo` first" in capsys.readouterr().err
