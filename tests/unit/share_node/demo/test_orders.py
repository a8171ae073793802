"""The demo's instructions to its workers, and their reports to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest

from share_node.demo.jobs import FAILURE_EVERY, BrokenRecordError, fails_first_attempt
from share_node.demo.orders import Orders, fail_now_and_then, reported
from sharegroups.worker.job import JobInfo, enter


def at_work(work: Callable[[], None], key: str = "a", times: int = 1) -> None:
    """Call `work` inside a job, in a separate context, so that afterwards no job is current."""

    def job() -> None:
        enter(lambda: JobInfo("t", 0, 5, times, key.encode(), []))
        work()

    copy_context().run(job)


def test_orders_go_through_the_environment() -> None:
    given = Orders("h:1", "t", "g", "3", "rows.csv", "/etc/alice.properties")
    assert Orders.of({"HOME": "/", **given.environment()}) == given
    assert Orders.of({}) == Orders()


def test_a_client_has_the_settings_of_the_file_and_the_cluster_of_the_orders(tmp_path: Path) -> None:
    (tmp_path / "alice.properties").write_text("security.protocol=SSL\nbootstrap.servers=elsewhere:1\n")
    orders = Orders("h:1", command_config=str(tmp_path / "alice.properties"))
    assert orders.client == {"bootstrap.servers": "h:1", "security.protocol": "SSL"}
    assert Orders("h:1").client == {"bootstrap.servers": "h:1"}


def test_one_record_in_nine_or_so_fails_and_only_at_its_first_delivery() -> None:
    failed = 0
    for key in map(str, range(900)):
        at_work(fail_now_and_then, key, times=2)
        if fails_first_attempt(key):
            failed += 1
            with pytest.raises(ConnectionError, match="planted"):
                at_work(fail_now_and_then, key)
        else:
            at_work(fail_now_and_then, key)
    assert 0.5 * 900 / FAILURE_EVERY < failed < 2 * 900 / FAILURE_EVERY


@pytest.mark.parametrize(
    ("error", "outcome", "tally"),
    [(None, "accepted", {"lines": 3}), (BrokenRecordError("no"), "rejected", {}), (OSError("away"), "released", {})],
)
def test_each_end_of_a_job_is_reported_once_and_the_exception_goes_on(
    capfd: pytest.CaptureFixture[str], error: Exception | None, outcome: str, tally: dict[str, int]
) -> None:
    def work() -> None:
        with reported() as counted:
            counted["lines"] = 3
            if error is not None:
                raise error

    if error is None:
        at_work(work, times=2)
    else:
        with pytest.raises(type(error)):
            at_work(work, times=2)
    said = json.loads(capfd.readouterr().out)
    assert said == {"partition": 0, "offset": 5, "count": 2, "outcome": outcome, "tally": tally}
