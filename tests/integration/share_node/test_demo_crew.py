"""The demo's workers as processes: which signals reach them, how they leave, and how their output is read."""

import json
import os
import signal
import sys

import pytest

from share_node.demo.ledger import Place, Report
from share_node.demo.orders import Orders
from share_node.demo.run import WorkerProcess

#: Reports one record, logs a line, and then waits like the demo's workers.
PROGRAM = """
import json, sys, time
from share_node.demo.orders import leave_when_dismissed
print(json.dumps({"partition": 1, "offset": 2, "count": 3, "outcome": "accepted", "tally": {"lines": 4}}), flush=True)
print('{"partition": 1, "off', flush=True)
print("WARNING t-1@2: failed", file=sys.stderr, flush=True)
leave_when_dismissed()
time.sleep(60)
"""


@pytest.mark.rule("CM-71")
def test_ctrl_c_does_not_reach_a_worker_and_it_gets_a_sigterm_when_it_is_dismissed() -> None:
    reports: list[Report] = []
    lines: list[str] = []
    worker = WorkerProcess(Orders(topic="t", number="7"), [sys.executable, "-c", PROGRAM], reports.append, lines.append)
    try:
        assert os.getpgid(worker.process.pid) != os.getpgid(0)
    finally:
        worker.dismiss()
    assert worker.process.returncode == -signal.SIGTERM
    assert reports == [Report(Place("t", 1, 2), 7, 3, "accepted", json.loads('{"lines": 4}'))]
    assert lines == ["WARNING t-1@2: failed"]
    assert worker.last_words == "WARNING t-1@2: failed"
