"""`sharegroups up` as people run it: what its processes say, and where they may be started."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from share_node.state_dump import state
from tests.integration.cluster import StartedProcess, up_words


@pytest.mark.rule("CM-70")
def test_the_log_level_reaches_every_process(tmp_path: Path) -> None:
    """Nothing is said below a warning; and the command line's own variable is no setting of the services."""
    words = up_words(tmp_path / "data", None, "--processes")  # with --log-level warning
    node = StartedProcess(words, tmp_path, {"SHAREGROUPS_BOOTSTRAP": "127.0.0.1:7932"})
    node.first_line()
    assert node.stop() == 0
    assert node.errors == ""


@pytest.mark.rule("CM-16")
def test_the_state_of_a_running_node_is_dumped(tmp_path: Path) -> None:
    node = StartedProcess(up_words(tmp_path / "data"), tmp_path)
    try:
        node.first_line()
        words = ["dump", "--data", str(tmp_path / "data"), "--kind"]
        claimed = CliRunner().invoke(state, [*words, "gc", "--shard", "7"])
        assert json.loads(claimed.stdout.splitlines()[0])["type"] == "C"
        absent = CliRunner().invoke(state, [*words, "gc", "--shard", "4711"])
        assert (absent.exit_code, absent.stdout, absent.stderr) == (0, "", "Nothing lies in {gc:4711}:log.\n")
    finally:
        node.stop()


@pytest.mark.rule("CM-16")
@pytest.mark.parametrize(("kind", "shard"), [("gc", "x"), ("sgs", "orders:0"), ("tp", "7"), ("tp", "orders:0")])
def test_a_name_that_no_shard_has_is_refused(kind: str, shard: str) -> None:
    result = CliRunner().invoke(state, ["dump", "--store", "redis://127.0.0.1:1", "--kind", kind, "--shard", shard])
    assert result.exit_code != 0
    assert f"--shard is '{shard}'; expected " in result.stderr
