"""The exit status of a demo: whether every record is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from share_node.demo import command
from share_node.demo.run import Demo
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
