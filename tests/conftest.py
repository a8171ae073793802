"""Rules for every test: in CI a skip must have a permitted reason.

With `--strict-skips`, or when CI=true, a test that is skipped for a reason not in tests/permitted_skips_in_ci.txt fails
instead. So a suite that passes in CI has run everything except what that file lists. More skips are permitted on other
machines (tests/permitted_skips.txt); what was skipped is printed at the end of the run.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.support.collector import exclude_old
from tools.conformance.skips import PERMITTED_IN_CI, matches, permitted, reason_of

# Otherwise gRPC stops its threads at every fork and restarts them in the child, which then closes their descriptors
# before its exec. As a result, Spark's JVM sometimes never started, and the tests that need it hung (grpc/grpc#43055).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# No deadline: on a busy machine an example can take longer than Hypothesis' default of 200 ms. The parent profile is
# the one that Hypothesis chose for this machine; with CI=true, every run has the same examples.
hypothesis.settings.register_profile("untimed", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("untimed")

_STRICT = pytest.StashKey[list[re.Pattern[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--strict-skips",
        action="store_true",
        default=os.environ.get("CI") == "true",
        help="fail tests that are skipped for a reason not in tests/permitted_skips_in_ci.txt (default when CI=true)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # If a script runs the tests in the background, they and every command they start would ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--strict-skips"):
        config.stash[_STRICT] = permitted(Path(__file__).with_name(PERMITTED_IN_CI.name))


@pytest.fixture(scope="module", autouse=True)
def _old_objects_excluded() -> None:
    """Exclude old objects again for each module: some tests unfreeze what it excluded, and tests add lasting
    objects."""
    exclude_old()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _hold(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _hold(collector.config, report)
    return report


def _hold(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or (patterns := config.stash.get(_STRICT, None)) is None:
        return
    reason = reason_of(report)
    if not matches(reason, patterns):
        report.outcome = "failed"
        report.longrepr = (
            f"skipped, and the reason is not permitted in CI: {reason!r}\n"
            f"expected: a reason that a line of {PERMITTED_IN_CI} matches\n"
            "try: let .ci/run install what the test needs, or add the reason there and say in a comment why CI cannot"
        )
