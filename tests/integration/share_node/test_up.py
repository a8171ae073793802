"""`sharegroups up` as people run it: what its processes say, and where they may be started."""

from pathlib import Path

import pytest

from tests.integration.cluster import StartedProcess, up_words


@pytest.mark.rule("CM-70")
def test_the_log_level_reaches_every_process(tmp_path: Path) -> None:
    """Nothing is said below a warning; and the command line's own variable is no setting of the services."""
    words = up_words(tmp_path / "data", None, "--processes")  # with --log-level warning
    node = StartedProcess(words, tmp_path, {"SHAREGROUPS_BOOTSTRAP": "127.0.0.1:7932"})
    node.first_line()
    assert node.stop() == 0
    assert node.errors == ""
