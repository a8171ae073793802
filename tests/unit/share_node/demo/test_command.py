"""The exit status of a demo: whether every record is accounted for."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from share_node.demo import command
from share_node.demo.run import Demo, DemoError, Outcome
from tests.unit.share_node.demo.test_report import outcome


@pytest.mark.rule("CM-71")
@pytest.mark.parametrize(("accepted_directly", "status"), [(1, 0), (2, 1)])
def test_a_demo_fails_when_a_record_is_unaccounted_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accepted_directly: int, status: int
) -> None:
    (tmp_path / "a.txt").write_text("line\n")
    monkeypatch.setattr(command, "_run", lambda *_: outcome(accepted_directly))
    monkeypatch.setattr(Demo, "clear_away", lambda demo: "nothing stays")
    words = ["--bootstrap-server", "h:1", "--input", str(tmp_path / "a.txt")]
    result = CliRunner().invoke(command.demo, words)
    assert result.exit_code == status
    assert ("Every record is accounted for" in result.output) is (status == 0)


@pytest.mark.rule("CM-185")
def test_the_log_that_a_demo_keeps_is_its_users_alone_whatever_the_umask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "up.log").write_text("of an earlier version")
    (tmp_path / "up.log").chmod(0o644)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    before = os.umask(0)
    try:
        with pytest.raises(DemoError), command._own_cluster(tmp_path):
            pass
    finally:
        os.umask(before)
    log = tmp_path / "up.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert log.read_text() == ""


@pytest.mark.rule("CM-71")
def test_client_settings_are_for_a_cluster_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, seen = tmp_path / "alice.properties", []
    (tmp_path / "a.txt").write_text("line\n")

    def ran(_console: object, story: Demo, *_: object) -> Outcome:
        seen.append(story.client)
        return outcome(1)

    monkeypatch.setattr(command, "_run", ran)
    monkeypatch.setattr(Demo, "clear_away", lambda demo: "nothing stays")
    words = ["--input", str(tmp_path / "a.txt"), "--command-config", str(config)]
    config.write_text("client.id=alice\n")
    refused = CliRunner().invoke(command.demo, words)
    assert (refused.exit_code, seen) == (2, [])
    assert "expected --bootstrap-server, or bootstrap.servers in" in refused.output
    assert CliRunner().invoke(command.demo, [*words, "--bootstrap-server", "h:2"]).exit_code == 0
    config.write_text("client.id=alice\nbootstrap.servers=h:1\n")
    assert CliRunner().invoke(command.demo, words).exit_code == 0
    assert seen == [{"client.id": "alice", "bootstrap.servers": address} for address in ("h:2", "h:1")]
