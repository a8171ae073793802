"""Tokens and passwords that are renewed, too late or in time, under consumers and workers of a node's process."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups import (
    Admin,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ShareConsumer,
    UserScramCredentialUpsertion,
)
from sharegroups.connection import wire
from tests.support.issuer import Issuer
from tests.support.node import BOUND_S, QUICK, TERMINATED, Cluster, unique

#: How long tokens live, in seconds, and how often they are renewed. The node asks to move with at least a tenth left.
LIFE_S: Final = 15.0
EVERY_S: Final = 4.0
JOB_S: Final = 2.0
PASSWORD: Final = "the first one"
WORKER: Final = """
import asyncio

from sharegroups import Worker

worker = Worker(bootstrap_servers="127.0.0.1:1", group_id="{group}", concurrency=4)


@worker.job("{topic}")
async def work(value: bytes) -> None:
    print("began", value.decode(), flush=True)
    await asyncio.sleep({seconds})
    print("ended", value.decode(), flush=True)
"""


class Place:
    """A node that takes tokens and passwords, without access control."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.issuer = Issuer(folder)
        self.cluster = Cluster({**QUICK, **self.issuer.settings(), "sasl.oauthbearer.clock.skew.seconds": "0"})
        self.anyone = {"bootstrap.servers": self.cluster.bootstrap}

    def topic(self) -> str:
        """Make a topic, and a group of the same name that begins with its first record."""
        name = unique("t")
        with Admin(self.anyone) as admin:
            admin.create_topics([NewTopic(name, 1)])
            admin.incremental_alter_configs(
                {ConfigResource.group(name): [AlterConfig("share.auto.offset.reset", "earliest")]}
            )
        return name

    def send(self, topic: str, *values: str) -> None:
        with Producer(self.anyone) as producer:
            for value in values:
                producer.produce(topic, value)

    def consumed(self) -> str:
        """Make a topic of which the group has worked through all records; return its name."""
        name = self.topic()
        self.send(name, "v")
        with ShareConsumer({**self.anyone, "group.id": name}) as consumer:
            consumer.subscribe([name])
            assert len(list(consumer.poll(BOUND_S))) == 1
            consumer.commit_sync()
        return name

    def renew(self, file: Path, text: str) -> None:
        """Replace a file in one step."""
        fresh = file.with_suffix(".fresh")
        fresh.write_text(text)
        os.replace(fresh, file)

    @contextmanager
    def working(self, topic: str, seconds: float, **settings: str) -> Iterator[Running]:
        """Run a worker with these settings, whose jobs take this many seconds."""
        name = f"w{uuid.uuid4().hex}"
        (self.folder / f"{name}.py").write_text(WORKER.format(group=topic, topic=topic, seconds=seconds))
        given = self.anyone | {key.replace("_", "."): value for key, value in settings.items()}
        (self.folder / f"{name}.properties").write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        words = [sys.executable, "-c", "from sharegroups.cli import run; run()", "worker", f"{name}:worker", "--quiet"]
        words += ["--command-config", f"{name}.properties"]
        out, log = self.folder / f"{name}.out", self.folder / f"{name}.log"
        with (
            out.open("w") as to,
            log.open("w") as errors,
            subprocess.Popen(words, cwd=self.folder, stdout=to, stderr=errors) as process,
        ):
            try:
                yield Running(out, log)
                process.terminate()
                assert process.wait(BOUND_S) == TERMINATED, log.read_text()
            finally:
                process.kill()


class Running:
    """What a running worker has printed and logged."""

    def __init__(self, out: Path, log: Path) -> None:
        self._out = out
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def counts(self, word: str) -> Counter[str]:
        """Return how often each job began, or ended."""
        return Counter(line.split()[1] for line in self._out.read_text().splitlines() if line.startswith(word))

    def wait_ended(self, *jobs: str) -> None:
        until = time.monotonic() + 2 * BOUND_S
        while not self.counts("ended").keys() >= set(jobs):
            assert time.monotonic() < until, self._out.read_text() + self.log
            time.sleep(0.1)

    def wait_logged(self, text: str) -> None:
        until = time.monotonic() + BOUND_S
        while text not in self.log:
            assert time.monotonic() < until, self.log
            time.sleep(0.1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("renewed"))
    yield made
    made.cluster.close()


@pytest.mark.rule("CM-199", "PL-533", "CL-144", "CL-158")
def test_no_job_is_lost_or_run_twice_when_a_workers_token_is_renewed_in_time(place: Place) -> None:
    topic, file, stopped = place.topic(), place.folder / "renewed.token", threading.Event()
    place.renew(file, place.issuer.token("w", LIFE_S))

    def renew() -> None:
        while not stopped.wait(EVERY_S):
            place.renew(file, place.issuer.token("w", LIFE_S))

    renewing = threading.Thread(target=renew)
    renewing.start()
    # Four at a time, so there is work under way at the end of each token, until two of them have ended.
    jobs = [str(number) for number in range(int(4 * 2.4 * LIFE_S / JOB_S))]
    try:
        place.send(topic, *jobs)
        with place.working(topic, JOB_S, sasl_oauthbearer_token_location=str(file)) as worker:
            worker.wait_ended(*jobs)
    finally:
        stopped.set()
        renewing.join()
    assert worker.counts("began") == worker.counts("ended") == Counter(jobs)
    assert worker.log == ""


def _password(place: Place, text: str) -> None:
    with Admin(place.anyone) as admin:
        assert admin.alter_user_scram_credentials([UserScramCredentialUpsertion("w", text)]) == {"w": None}


@pytest.mark.rule("CL-158", "CM-186", "CM-190")
@pytest.mark.parametrize("kind", ["token", "password"])
def test_a_worker_says_once_that_it_is_not_accepted_and_goes_on_with_a_newer_file(place: Place, kind: str) -> None:
    topic, file = place.topic(), place.folder / f"late.{kind}"
    if kind == "token":
        place.renew(file, place.issuer.token("w", 8.0))
        settings = {"sasl_oauthbearer_token_location": str(file)}
    else:
        _password(place, PASSWORD)
        place.renew(file, PASSWORD)
        settings = {"sasl_username": "w", "sasl_password_location": str(file)}
    with place.working(topic, 0.0, **settings) as worker:
        place.send(topic, "first")
        worker.wait_ended("first")
        if kind == "password":
            _password(place, "the second one")
        worker.wait_logged("no node accepts this worker's token or password; it keeps trying")
        place.send(topic, "second")
        time.sleep(3)  # it tries several times
        place.renew(file, place.issuer.token("w") if kind == "token" else "the second one")
        worker.wait_ended("first", "second")
    assert worker.counts("began") == Counter(["first", "second"])
    assert worker.log.count("no node accepts") == 1
    assert ("the token expired at" if kind == "token" else "no user 'w' with this password") in worker.log
    assert len([line for line in worker.log.splitlines() if json.loads(line)["level"] in {"warning", "error"}]) == 1, (
        worker.log
    )


async def _read_all(stream: Any, answers: list[Any]) -> None:
    while (answer := await stream.read()) is not None:
        answers.append(answer)


async def _parked(place: Place, authorization: str, act: Callable[[], None]) -> tuple[list[tuple[int, bool]], str]:
    """Park a fetch on a stream, and act; return the answers, by correlation number, and how the stream ends."""
    topic = await asyncio.to_thread(place.consumed)
    with Admin(place.anyone) as admin:
        topic_id = admin.list_topics([topic])[topic].topic_id
    transport = GrpcTransport(None, lambda: (("authorization", authorization),))
    stream = await transport.open_stream(place.cluster.bootstrap, wire.SHARE_STREAM)
    fetch = ShareFetchRequest(
        group_id=topic, member_id=str(uuid.uuid4()), max_wait_ms=600_000, min_bytes=1,
        max_bytes=1 << 20, max_records=1, batch_size=1,
    )  # fmt: skip
    fetch.topics.add(topic_id=topic_id).partitions.add(partition_index=0)
    await stream.write(ShareStreamRequest(correlation_id=1, fetch=fetch))
    answers: list[Any] = []
    reading = asyncio.ensure_future(_read_all(stream, answers))
    await asyncio.sleep(1)
    assert answers == [], "it is parked"
    await asyncio.to_thread(act)
    with pytest.raises(TransportError) as ended:
        await asyncio.wait_for(reading, BOUND_S)
    assert ended.value.status is TransportStatus.UNAUTHENTICATED
    await stream.close()
    await transport.close()
    return [(answer.correlation_id, answer.move) for answer in answers], str(ended.value)


@pytest.mark.rule("CM-186")
def test_a_parked_fetch_ends_with_the_password_and_its_stream_with_the_token(place: Place) -> None:
    _password(place, PASSWORD)
    basic = base64.b64encode(f"w:{PASSWORD}".encode()).decode()
    answers, said = asyncio.run(_parked(place, f"Basic {basic}", lambda: _password(place, "another one")))
    assert answers == []
    assert "no user 'w' with this password" in said
    answers, said = asyncio.run(_parked(place, f"Bearer {place.issuer.token('w', 5.0)}", lambda: None))
    assert sorted(answers) == [(0, True), (1, False)], "it is asked to move before the end, and then nothing is parked"
    assert "the token expired at 2" in said


@pytest.mark.rule("CL-158", "CL-102")
def test_a_transactional_producer_goes_on_with_a_newer_token(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sharegroups")
    topic, file = place.topic(), place.folder / "paying.token"
    place.renew(file, place.issuer.token("p", 4.0))
    settings = {**place.anyone, "sasl.oauthbearer.token.location": str(file), "transactional.id": topic}
    with Producer(settings) as producer:
        with producer.transaction():
            producer.produce(topic, b"paid")
        time.sleep(4.5)
        renewal = threading.Timer(2.0, lambda: place.renew(file, place.issuer.token("p")))
        renewal.start()
        try:
            with producer.transaction():
                producer.produce(topic, b"paid again")
        finally:
            renewal.join()
    assert caplog.messages == []
