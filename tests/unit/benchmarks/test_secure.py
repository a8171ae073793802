"""How `--secure` secures a cluster, and which ratios are computed from its runs. Nothing here is timed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.secure import ACLS, ENTRIES, MODES, MTLS, TLS, entries, secured
from benchmarks.workers import main as workers_main
from benchmarks.workers import ratio_table
from kip932.acls import Operation, ResourceType


def test_without_a_mode_nothing_is_made_and_nothing_is_set(tmp_path: Path) -> None:
    found = secured("", tmp_path / "certs")
    assert (found.words, found.client, found.admin) == ((), {}, {})
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_decides_what_clients_show_and_what_the_node_asks_for(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = secured(mode, tmp_path / "certs")
    assert capsys.readouterr().out == "", "standard output is for the runs"
    assert found.words[0] == "--config"
    assert tomllib.loads(Path(found.words[1]).read_text())
    assert ("ssl.client.auth=none" in found.words) is (mode == TLS)
    assert ("access.control.enable=true" in found.words) is (mode == ACLS)
    for settings, name in ((found.client, "bench"), (found.admin, "admin")):
        assert settings["security.protocol"] == "SSL"
        assert Path(settings["ssl.ca.location"]).is_file()
        own = {"ssl.certificate.location": f"{name}.crt", "ssl.key.location": f"{name}.key"}
        shown = {key: Path(settings[key]).name for key in own if key in settings}
        assert shown == ({} if mode == TLS else own)
    assert found.client_file is not None
    assert dict(line.split("=", 1) for line in found.client_file.read_text().splitlines()) == found.client


def test_few_of_a_hundred_entries_are_about_the_benchmark() -> None:
    found = entries("jobs", ["a", "b"])
    assert len(set(found)) == ENTRIES == 100
    own = [acl for acl in found if acl.principal == "User:bench" and acl.resource_name in ("jobs", "a", "b")]
    assert [(acl.resource_type, acl.resource_name, acl.operation) for acl in own] == [
        (ResourceType.TOPIC, "jobs", Operation.WRITE),
        (ResourceType.TOPIC, "jobs", Operation.DESCRIBE),
        (ResourceType.TOPIC, "jobs", Operation.CREATE),
        (ResourceType.TOPIC, "jobs", Operation.READ),
        (ResourceType.GROUP, "a", Operation.READ),
        (ResourceType.GROUP, "b", Operation.READ),
    ]
    assert 40 < sum(acl.resource_name == "jobs" for acl in found if acl not in own) < 60


def one_by_one(system: str, number: int, ops: float) -> dict[str, Any]:
    run = {"benchmark": "B5", "system": system, "shape": "1p1c", "round": number}
    return run | {"ops_per_s": ops, "cpu_us_per_record": 1000.0 / ops}


def test_a_secured_side_is_compared_with_ours_of_its_round_and_changes_no_other_ratio() -> None:
    rates = ((report.OURS, 100.0), (TLS, 80.0), (MTLS, 80.0), (ACLS, 40.0))
    runs = [one_by_one(system, number, rate * number) for number in (1, 2) for system, rate in rates]
    assert {line.name: line.rounds for line in report.lines(runs)} == {
        "B5 1p1c ops per s, tls / without TLS, everysec": (0.8, 0.8),
        "B5 1p1c ops per s, mtls / without TLS, everysec": (0.8, 0.8),
        "B5 1p1c ops per s, acls / without TLS, everysec": (0.4, 0.4),
        "B5 1p1c ops per s, acls / mtls, everysec": (0.5, 0.5),
        "B5 1p1c CPU per operation, tls / without TLS, everysec": (1.25, 1.25),
        "B5 1p1c CPU per operation, mtls / without TLS, everysec": (1.25, 1.25),
        "B5 1p1c CPU per operation, acls / without TLS, everysec": (2.5, 2.5),
        "B5 1p1c CPU per operation, acls / mtls, everysec": (2.0, 2.0),
    }


def workers_run(system: str, jobs_per_s: int, node_us: float, p50_ms: float) -> dict[str, Any]:
    us = {"workers": 10.0, "node": node_us, "valkey": 5.0}
    run = {"benchmark": "B12", "system": system, "workers": 4, "round": 1, "jobs_per_s": jobs_per_s}
    return run | {"cpu_us_per_job": us, "p50_ms": p50_ms, "p99_ms": 4.0}


def test_workers_are_compared_by_rate_latency_and_the_cpu_of_all_processes() -> None:
    table = ratio_table([workers_run("worker", 1000, 5.0, 2.0), workers_run(TLS, 900, 15.0, 3.0)])
    found = [line.rsplit(None, 2)[:2] for line in table.splitlines()[1:]]
    assert found == [
        ["B12 4w jobs per s, tls / without TLS", "0.90"],
        ["B12 4w CPU per job, tls / without TLS", "1.50"],
        ["B12 4w p50 to start, tls / without TLS", "1.50"],
        ["B12 4w p99 to start, tls / without TLS", "1.00"],
    ]


def test_what_cannot_be_compared_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        workers_main(["--secure", "tls", "--only", "killed"])
    assert "--secure goes with --only noop; --only is killed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["B1", "--secure", "tls", "--systems", "valkey-group"])
    assert "--secure needs sharegroups among --systems" in capsys.readouterr().err
