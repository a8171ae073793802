"""A rolling upgrade: processes of an old and of the current build in one cluster, replaced one by one under load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.deployment import GROUP_COORDINATOR, PARTITION_LEADER, SHARE_COORDINATOR, Topology
from tests.chaos.experiment import SETTINGS
from tests.chaos.hands import Hand
from tests.chaos.history import Failed, read_history
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial
from tests.chaos.verdict import Verdict, judge_history
from tests.upgrade.kept import dump_of
from tests.upgrade.kinds import fields_of
from tests.upgrade.rollout import OLD_COMMIT, SOURCES, NoHistoryError, RolloutDeployment, check_out, environment_of

TWO_OF_EACH = Topology(leaders=2, share_coordinators=2, group_coordinators=2, store_replicas=0)
LOAD = LoadOptions(partitions=4, consumers=2, rate=60)
#: Written by the current build and unknown to the old one.
NEW_FIELD = "WriteStats.write_id"
#: Services that keep state are upgraded before those that request it.
ORDER = (SHARE_COORDINATOR, GROUP_COORDINATOR, PARTITION_LEADER)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return check_out(OLD_COMMIT, tmp_path_factory.mktemp("old"))
    except NoHistoryError as error:
        pytest.skip(f"needs the git history: {error}")


@pytest.fixture
def folder() -> Path:
    """Return a folder outside pytest's own, which a later run would remove; a test that passes removes it itself."""
    path = Path(tempfile.mkdtemp(prefix="sg-rollout-"))
    print(f"histories and logs: {path}")
    return path


#: Printed occasionally by grpc.aio itself about a call that arrived while its process was ending; no frame is our code.
_GRPC_ENDS: Final = re.compile(
    r"^Traceback \(most recent call last\):\n"
    r"(  File \"src/python/grpcio/grpc/_cython/.*\n)+"
    r"asyncio\.exceptions\.CancelledError\n",
    re.MULTILINE,
)


def judged(deployment: RolloutDeployment, folder: Path) -> Verdict:
    """Return the verdict. Raises AssertionError with the violations, or with output that no fault explains."""
    events = read_history(sorted(folder.glob("*.jsonl")))
    verdict = judge_history(events)
    assert verdict.violations == (), "\n".join([*verdict.violations[:20], f"histories and logs: {folder}"])
    assert [event for event in events if isinstance(event, Failed)] == [], f"histories and logs: {folder}"
    for name, said in deployment.logs().items():
        assert "Traceback" not in _GRPC_ENDS.sub("", said), f"{name}; see {folder}"
    print(f"records={verdict.records} lost={verdict.lost} accepted_twice={verdict.accepted_twice} {verdict.stall}")
    return verdict


def test_the_old_code_is_what_runs(old: Path) -> None:
    """Otherwise the experiments below would prove nothing."""
    program = (
        "import group_coordinator, kip932, partition_leader, share_coordinator, share_node, shard_runtime\n"
        "from kip932.records.v1.write_stats_pb2 import WriteStats\n"
        "for module in (group_coordinator, kip932, partition_leader, share_coordinator, share_node, shard_runtime):\n"
        "    print(module.__file__)\n"
        "assert 'write_id' not in WriteStats.DESCRIPTOR.fields_by_name"
    )
    words = [sys.executable, "-c", program]
    environment = environment_of(old, os.environ)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for path in done.stdout.splitlines():
        assert path.startswith(tuple(str(old / source) for source in SOURCES))


@pytest.mark.rule("CM-16", "CM-4", "CM-12")
@pytest.mark.scenario("S-106")
def test_nothing_is_lost_while_every_process_is_exchanged_for_one_of_the_next_version(old: Path, folder: Path) -> None:
    """Halfway through, every role has an old and a new process, and new groups work too."""
    with RolloutDeployment(folder, TWO_OF_EACH, SETTINGS, old) as deployment:
        with Trial(deployment, folder, 1, "work", LOAD) as trial:
            for number in (1, 0):
                for role in ORDER:
                    exchange(trial, deployment, f"{role}-{number}")
                trial.load.wait_working(consumers(trial))
                if number:
                    assert deployment.renewed == {f"{role}-1" for role in ORDER}
                    trial.load.start_worker("consumer-late", "consumer")
                    trial.load.wait_working(consumers(trial))
            assert deployment.renewed == set(trial.everybody())
            trial.finish()
        judged(deployment, folder)
    shutil.rmtree(folder)


@pytest.mark.rule("CM-16", "CM-4", "CM-12")
@pytest.mark.scenario("S-106")
def test_nothing_is_lost_when_a_rollout_is_taken_back(old: Path, folder: Path) -> None:
    """Old processes take over what new ones wrote, including a field that they do not know."""
    with RolloutDeployment(folder, TWO_OF_EACH, SETTINGS, old) as deployment:
        with Trial(deployment, folder, 2, "work", LOAD) as trial:
            for role in ORDER:
                exchange(trial, deployment, f"{role}-1")
                trial.stop(f"{role}-0")
            work_on_a_new_topic(trial, "second")
            assert fields_of(dump_of(deployment.store_url)) >= {NEW_FIELD}, "new processes wrote what is new"
            for role in reversed(ORDER):
                trial.start(f"{role}-0")
                exchange(trial, deployment, f"{role}-1", back=True)
            assert deployment.renewed == set()
            work_on_a_new_topic(trial, "third")
            trial.load.wait_working(consumers(trial))
            trial.finish()
        judged(deployment, folder)
    shutil.rmtree(folder)


def work_on_a_new_topic(trial: Trial, topic: str) -> None:
    """Let a group start on a new topic: its share-partitions are initialised, and all its records accepted."""
    trial.load.create_topic(topic, 3)
    trial.produce(20, topic, partition=2)
    hand = Hand(trial.deployment, trial.folder, f"hand-{topic}", "others", topic)
    try:
        hand.take_and_accept(range(20))
    finally:
        hand.close()


def consumers(trial: Trial) -> list[str]:
    return [name for name in trial.load.workers if name.startswith("consumer")]


def exchange(trial: Trial, deployment: RolloutDeployment, name: str, *, back: bool = False) -> None:
    """Stop the node with SIGTERM and start it with the other version; it is ready when this returns."""
    trial.stop(name)
    deployment.renew(name, back=back)
    trial.start(name)
