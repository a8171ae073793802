"""The demo's workers as processes: whom the terminal's signals reach, and how they leave."""

import os
import sys

import pytest

from share_node.demo.crew import Worker


@pytest.mark.rule("CM-71")
def test_ctrl_c_does_not_reach_a_worker_and_it_leaves_when_it_is_dismissed() -> None:
    worker = Worker(1, "t", [sys.executable, "-c", "import sys; sys.stdin.read()"], lambda report: None)
    try:
        assert os.getpgid(worker.process.pid) != os.getpgid(0)
    finally:
        worker.dismiss()
    assert worker.process.returncode == 0
