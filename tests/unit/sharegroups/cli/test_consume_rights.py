"""`sharegroups consume` without permission: an error at the start, a warning if it is revoked later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from sharegroups.cli.console import Console
from sharegroups.producing.produced import encode
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce
from tests.unit.sharegroups.cli.conftest import sharegroups

READ_T, DESCRIBE_T, READ_G, DESCRIBE_G = (
    f"{operation} on {resource}" for resource in ("topic 't'", "group 'g'") for operation in ("READ", "DESCRIBE")
)


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize("denied", [{READ_G}, {READ_G, DESCRIBE_G}, {READ_T}, {READ_T, DESCRIBE_T}])
def test_a_right_that_is_missing_from_the_start_ends_the_command_with_the_error(
    fake: FakeCluster, denied: set[str]
) -> None:
    fake.denied = denied
    result = sharegroups("consume", "t", "--group", "g", "--timeout-ms", "5000")
    assert (result.exit_code, result.stdout) == (1, "")
    error, processed = result.stderr.splitlines()
    assert error.startswith("Error: Consuming failed: User:alice has no right to ")
    assert error.endswith(
        "sharegroups acls add --allow-principal User:NAME --consumer --topic t --group g --command-config FILE"
    )
    assert processed == "Processed a total of 0 messages"


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize("right", [READ_G, READ_T])
def test_a_right_that_is_taken_away_is_printed_once_and_the_command_goes_on(
    fake: FakeCluster, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(fake)
    usual: Callable[..., None] = Console._handle

    def handle(*arguments: object) -> None:
        usual(*arguments)
        fake.denied = {right} if not fake.denied else fake.denied
        later.start()

    def give_back() -> None:
        time.sleep(0.7)
        monkeypatch.setattr(Console, "_handle", usual)
        fake.log("t").append(encode([(None, b"w0", (), 1000)])[0], 1)  # does not wake the consumer's loop
        fake.denied = set()

    later = threading.Thread(target=give_back)
    monkeypatch.setattr(Console, "_handle", handle)
    result = sharegroups("consume", "t", "--group", "g", "--max-messages", "2", "--timeout-ms", "8000")
    later.join()
    assert (result.exit_code, result.stdout) == (0, "v0\nw0\n")
    warnings = [line for line in result.stderr.splitlines() if "acknowledgement" not in line]
    assert len(warnings) == 2, result.stderr
    assert warnings[0].startswith("Warning: a right was taken away; records arrive again when it is back: ")
    assert warnings[1] == "Processed a total of 2 messages"
