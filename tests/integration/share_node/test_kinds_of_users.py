"""One user of each kind, with only the ACL entries that docs/howto/secure.md lists for that kind, on clusters of each
form.

Each can do its own work and is refused that of others; after the command that the refusal proposes, it may do that too.
Each kind logs in once with a certificate, once with a token and once with a password; each cluster has users of all
three.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from click.testing import CliRunner, Result
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from kip932.errors import TransactionalIdAuthorizationFailedError
from kip932.keda import external_scaler_pb2 as keda
from sharegroups import Producer
from sharegroups.cli.main import main
from tests.integration.share_node.places import (
    ADMIN,
    LOGINS,
    PASSWORD,
    Place,
    documented_entries,
    kubernetes,
    one_process,
    password_of,
    three_processes,
)
from tests.integration.share_node.test_scaler import Asked, ref
from tests.support.node import BOUND_S, TERMINATED
from tests.support.ports import free_port

#: The users' names, and the row of the page that lists what each needs.
KINDS: Final = {
    "shop": "producer",
    "payer": "transactional producer",
    "reader": "share consumer",
    "mailer": "worker",
    "owner": "worker that also names its group's dead-letter topic",
    "ops": "operator, who inspects everything and changes nothing, and reads dead letters",
    "mender": "who redrives and purges dead letters",
    "scaler": "KEDA scaler",
    "demo": "`sharegroups demo`",
    "chief": "administrator",
}
SHAPES: Final = (one_process, three_processes, kubernetes)
WORKER = """
from sharegroups import Reject, Worker

worker = Worker(bootstrap_servers="127.0.0.1:1", group_id="mail")


@worker.job("jobs", outcomes={ValueError: Reject})
def send(value: bytes) -> None:
    if value == b"bad":
        raise ValueError("planted")
    print(f"sent {value.decode(errors='replace')!r}\\n", end="", flush=True)  # in one piece: it runs in threads
"""


class Story:
    """A cluster with topics and users, and their actions on it."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def run(self, user: str, *words: str, given: str = "") -> Result:
        """Run a command of `sharegroups` as a user."""
        words = (*words, "--command-config", str(self.place.properties(user)))
        return CliRunner().invoke(main, list(words), input=given)

    def does(self, user: str, *words: str, given: str = "") -> str:
        """Run a command that must succeed; return its standard output."""
        done = self.run(user, *words, given=given)
        assert done.exit_code == 0, (user, words, done.output)
        return done.stdout

    def add_passwords(self) -> None:
        """Add the users that come with passwords, and wait until every node knows them."""
        users = [user for user, kind in self.place.logins.items() if kind == PASSWORD]
        for user in users:
            self.does(ADMIN, "users", "add", user, "--password-stdin", given=password_of(user))
        until = time.monotonic() + BOUND_S
        for node in self.place.bootstrap.split(","):
            while self.run(users[-1], "groups", "list", "--bootstrap-server", node).exit_code != 0:
                assert time.monotonic() < until, node

    def add(self, user: str, entries: list[str]) -> None:
        """Let the administrator add entries for a user."""
        self.does(ADMIN, "acls", "add", "--allow-principal", f"User:{user}", *entries)

    def may_not(self, user: str, *words: str, given: str = "") -> None:
        """Check that a command is refused, that it works once the administrator has run what the refusals propose, and
        remove these entries again."""
        done = self.run(user, *words, given=given)
        assert done.exit_code == 1, (user, words, done.output)
        assert f"User:{user} may not " in done.stderr
        added: list[list[str]] = []
        until = time.monotonic() + BOUND_S
        while done.exit_code != 0:
            assert time.monotonic() < until, (added, done.output)
            found = re.search(r"sharegroups acls add (--allow-principal [^;\n(]*)", done.stderr)
            assert found is not None, done.output
            proposed = shlex.split(
                found[1].replace("--topic NAME", "--topic jobs").replace("--command-config FILE", "")
            )
            if proposed not in added:  # otherwise it has not reached every node yet
                added.append(proposed)
                self.does(ADMIN, "acls", "add", *proposed)
            done = self.run(user, *words, given=given)
        for proposed in added:
            self.does(ADMIN, "acls", "remove", *proposed, "--force")

    def send(self, *values: str) -> None:
        """Produce to `jobs` as the producer."""
        self.does("shop", "produce", "jobs", given="".join(f"{value}\n" for value in values))

    def works(self, user: str, last: str) -> str:
        """Run the worker of the group `mail` as a user until it has sent `last`; return its log."""
        (self.place.folder / "mailshop.py").write_text(WORKER)
        words = [sys.executable, "-c", "from sharegroups.cli import run; run()", "worker", "mailshop:worker", "--quiet"]
        words += ["--command-config", str(self.place.properties(user))]
        out, log = self.place.folder / "worker.out", self.place.folder / "worker.log"
        with (
            out.open("w") as to,
            log.open("w") as errors,
            subprocess.Popen(words, cwd=self.place.folder, stdout=to, stderr=errors) as process,
        ):
            until = time.monotonic() + BOUND_S
            while f"sent {last!r}\n" not in out.read_text() and time.monotonic() < until:
                time.sleep(0.1)
            process.terminate()
            status = process.wait(BOUND_S)
        assert (status, f"sent {last!r}\n" in out.read_text()) == (TERMINATED, True), out.read_text() + log.read_text()
        return log.read_text()

    def letters(self) -> int:
        """Make a dead letter, and wait until there are some; return how many."""
        self.send("bad", "good")
        assert "it becomes a dead letter in dlq.jobs" in self.works("mailer", "good")
        until = time.monotonic() + BOUND_S
        while time.monotonic() < until:
            if count := self.does("mender", "dlq", "list", "--topic", "dlq.jobs").count("jobs:"):
                return count
            time.sleep(0.1)
        raise AssertionError("no dead letter was written")


def _login(shape: int, user: str) -> str:
    """Return what a user shows on a cluster: the scaler a certificate in Kubernetes, where that is what the example
    has."""
    return LOGINS[(list(KINDS).index(user) + shape) % len(LOGINS)]


@pytest.fixture(scope="module", params=range(len(SHAPES)), ids=[made.__name__ for made in SHAPES])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with SHAPES[request.param](tmp_path_factory.mktemp("kinds")) as place:
        place.logins |= {user: _login(request.param, user) for user in KINDS}
        found = Story(place)
        found.add_passwords()
        found.does(ADMIN, "topics", "create", "jobs", "--partitions", "1")
        letters = "errors.deadletterqueue.group.enable=true"
        found.does(ADMIN, "topics", "create", "dlq.jobs", "--partitions", "1", "--config", letters)
        for group, config in (
            ("mail", "share.auto.offset.reset=earliest,errors.deadletterqueue.topic.name=dlq.jobs"),
            ("read", "share.auto.offset.reset=earliest"),
        ):
            found.does(ADMIN, "configs", "alter", "--group", group, "--add-config", config)
        documented = documented_entries()
        for user, kind in KINDS.items():
            found.add(user, documented[kind][0])
        yield found


@pytest.mark.rule("CM-60")
def test_probes_need_no_certificate(story: Story) -> None:
    for address, services in story.place.probes:
        with grpc.insecure_channel(address) as channel:
            for service in services:
                asked = health_pb2.HealthCheckRequest(service=service)
                answer = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=BOUND_S)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING, (address, service)


@pytest.mark.rule("CT-137")
def test_a_producer_sends_and_reads_nothing(story: Story) -> None:
    story.send("a", "b")
    story.does("shop", "perf", "produce", "--topic", "jobs", "--num-records", "10", "--record-size", "10")
    story.may_not("shop", "consume", "jobs", "--group", "read", "--max-messages", "1")


@pytest.mark.rule("CT-137")
def test_a_share_consumer_reads_and_sends_nothing(story: Story) -> None:
    story.send("1", "2", "3")
    assert story.does("reader", "consume", "jobs", "--group", "read", "--max-messages", "1")
    story.does("reader", "perf", "consume", "--topic", "jobs", "--group", "read", "--num-records", "1")
    story.does("reader", "verify-consumer", "--topic", "jobs", "--group-id", "read", "--max-messages", "1")
    assert "jobs" in story.does("reader", "groups", "describe", "--group", "read")
    story.may_not("reader", "produce", "jobs", given="x\n")


@pytest.mark.rule("CT-137", "CL-129", "CM-186", "CM-190", "CL-158")
def test_a_worker_works_and_its_failures_become_letters_without_a_right_on_their_topic(story: Story) -> None:
    """Of CL-158, CM-186 and CM-190 this shows that a worker, and the commands of the other tests, are who their token
    or password says. Settings that are refused, renewed files and refused credentials are shown by others."""
    assert story.letters() >= 1
    name = ("--group", "mail", "--add-config", "errors.deadletterqueue.topic.name=dlq.jobs")
    story.may_not("mailer", "configs", "alter", *name)
    story.does("owner", "configs", "alter", *name)
    story.send("owned")
    story.works("owner", "owned")


@pytest.mark.rule("CT-137")
def test_a_transactional_producer_commits_and_another_producer_does_not(story: Story) -> None:
    def commit(user: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": story.place.bootstrap, **story.place.login(user)}
        with Producer({**settings, "transactional.id": "pay"}) as producer, producer.transaction():
            producer.produce("jobs", b"paid")

    commit("payer")
    with pytest.raises(TransactionalIdAuthorizationFailedError, match="User:shop may not WRITE TRANSACTIONAL_ID 'pay'"):
        commit("shop")
    story.may_not("payer", "configs", "describe", "--topic", "jobs")


@pytest.mark.rule("CT-137")
def test_an_operator_sees_everything_and_changes_nothing(story: Story) -> None:
    story.letters()
    assert "mail" in story.does("ops", "groups", "list")
    for more in ((), ("--verbose",), ("--members",), ("--state",)):
        story.does("ops", "groups", "describe", "--group", "mail", *more)
    story.does("ops", "groups", "explain", "--group", "mail", "--topic", "jobs:0", "--offset", "0")
    assert "dlq.jobs" in story.does("ops", "topics", "list")
    for words in (
        "topics describe jobs", "features", "configs describe --group mail", "configs describe --topic jobs",
        "transactions list", "acls list", "acls explain --principal User:shop --operation Write --topic jobs",
        "dlq list --group mail", "dlq list --topic dlq.jobs", "dlq show --topic dlq.jobs:0 --offset {}",
    ):  # fmt: skip
        story.does("ops", *words.format(_letter(story)).split(" "))
    story.may_not("ops", "dlq", "redrive", "--topic", "dlq.jobs", "--all", "--limit", "1")


def _letter(story: Story) -> int:
    """Return the offset of the last dead letter."""
    text = story.does("ops", "dlq", "list", "--topic", "dlq.jobs", "--output", "json")
    return int(re.findall(r'"offset": (\d+)', text)[-1])


@pytest.mark.rule("CT-137")
def test_dead_letters_are_redriven_and_purged(story: Story) -> None:
    story.letters()
    story.does("mender", "dlq", "redrive", "--group", "mail", "--all", "--dry-run")
    story.does("mender", "dlq", "redrive", "--group", "mail", "--all")
    story.does("mender", "dlq", "purge", "--topic", "dlq.jobs", "--all", "--yes")
    story.does("mender", "dlq", "list", "--topic", "dlq.jobs")
    story.may_not("mender", "configs", "describe", "--topic", "jobs")


@pytest.mark.rule("CM-61")
def test_the_scaler_counts_and_needs_read_for_the_age_alone(story: Story) -> None:
    story.send("one")
    port = free_port()
    process = story.place.scaler("scaler", port)
    asked = Asked(f"127.0.0.1:{port}")
    trigger = {"group": "mail", "topics": "jobs", "lagTarget": "1"}
    try:
        process.first_line()
        assert asked.active(**trigger)
        assert asked.value("lag", **trigger) >= 1
        aged = {**trigger, "ageTargetSeconds": "1"}
        with pytest.raises(grpc.RpcError, match="may not READ TOPIC 'jobs'") as refused:
            asked.value("age-seconds", **aged)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        unknown = keda.GetMetricsRequest(scaled_object_ref=ref({**trigger, "group": "read"}), metric_name="lag")
        with pytest.raises(grpc.RpcError, match="may not DESCRIBE GROUP 'read'"):
            asked.call("GetMetrics", unknown, keda.GetMetricsResponse)
        story.add("scaler", documented_entries()[KINDS["scaler"]][1])
        until = time.monotonic() + BOUND_S
        while True:
            try:
                assert asked.value("age-seconds", **aged) > 0
                break
            except grpc.RpcError:
                assert time.monotonic() < until
    finally:
        asked.channel.close()
        process.stop()


@pytest.mark.rule("CM-71")
def test_the_demo_runs_with_rights_on_its_own_names(story: Story, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(200)))
    words = ["demo", "--input", str(tmp_path / "lines.txt"), "--workers", "2", "--bootstrap-server"]
    words += [story.place.bootstrap, "--command-config", str(story.place.properties("demo"))]
    done = subprocess.run(
        [sys.executable, "-m", "share_node", *words], capture_output=True, text=True, timeout=2 * BOUND_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every record is accounted for" in done.stdout
    story.may_not("demo", "topics", "create", "others")


@pytest.mark.rule("CT-137")
def test_an_administrator_without_being_a_super_user_does_everything(story: Story) -> None:
    story.does("chief", "topics", "create", "more")
    story.does("chief", "acls", "add", "--allow-principal", "User:new", "--consumer", "--topic", "more", "--group", "g")
    story.does("chief", "acls", "remove", "--principal", "User:new", "--topic", "more", "--group", "g", "--force")
    story.does("chief", "configs", "alter", "--topic", "more", "--add-config", "retention.ms=3600000")
    story.does("chief", "topics", "delete", "more")
    story.may_not("ops", "topics", "create", "of-ops")


@pytest.mark.rule("CM-184")
def test_a_backup_needs_the_stores_user_and_no_entry(story: Story, tmp_path: Path) -> None:
    story.send("kept")
    words, environ = story.place.store
    done = subprocess.run(
        [sys.executable, "-m", "share_node", "backup", str(tmp_path / "saved"), *words],
        env={**os.environ, **environ}, capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "saved").iterdir())
