"""How `benchmarks.workers` names, starts and counts the task queues it compares. Nothing here is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.machine import tree_cpu_seconds
from benchmarks.processes import ROOT
from benchmarks.worker_apps.marks import MARK
from benchmarks.worker_systems import DEFAULT, SYSTEMS
from benchmarks.workers import _available, _sent


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_worker_is_started_by_its_own_command_and_by_the_given_interpreter(name: str) -> None:
    system = SYSTEMS[name]
    words = system.command("/other/python", "redis://h:1/0")
    assert not [word for word in words if "{" in word]
    assert words[0] == (sys.executable if name == "worker" else "/other/python")
    assert ("redis://h:1/0" in words) is (name == "rq"), "the others read it from their environment"
    if system.app:
        assert (ROOT / f"{system.app.replace('.', '/')}.py").is_file()


def test_fast_systems_get_more_jobs_and_slow_ones_fewer() -> None:
    assert {name: SYSTEMS[name].jobs(1_000) for name in ("worker", "celery", "rq")} == {
        "worker": 20_000, "celery": 1_000, "rq": 100,
    }  # fmt: skip
    assert SYSTEMS["rq"].jobs(20) == 10


def test_a_system_that_is_not_installed_is_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.peers.missing", lambda python, modules: ", ".join(modules))
    assert [system.name for system in _available(DEFAULT, sys.executable)] == ["worker"]
    assert "dramatiq is left out; it needs dramatiq\n" in capsys.readouterr().err


def test_jobs_are_known_by_when_they_were_sent_and_half_a_mark_does_not_count(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.write_bytes(MARK.pack(5, 100) + MARK.pack(6, 101) + MARK.pack(9, 100) + MARK.pack(1, 102)[:7])
    assert _sent(marks) == [100, 101, 100]


def test_the_time_of_children_that_have_ended_is_that_of_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {1: ["S", *["0"] * 10, "100", "200", "300", "400"], 2: ["S", *["0"] * 10, "1", "2", "0", "0"]}
    monkeypatch.setattr("benchmarks.machine.process_tree", lambda pid: {"a": 1, "b": 2, "gone": 3})
    monkeypatch.setattr("benchmarks.machine._TICKS_PER_S", 100)

    def stat(pid: int) -> list[str]:
        if pid not in fields:
            raise ProcessLookupError
        return fields[pid]

    monkeypatch.setattr("benchmarks.machine._stat_fields", stat)
    assert tree_cpu_seconds(1) == pytest.approx(10.03)
