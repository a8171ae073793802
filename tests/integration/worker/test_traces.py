"""The trace of one job, through producer, node, worker and a database, exported to files by the SDK's own exporter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from sharegroups import Admin
from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic
from tests.support.node import BOUND_S, QUICK, Cluster, StartedProcess, unique

SITE = Path(__file__).parents[2] / "support" / "traced_program"
API, INTERNAL = "kip932.api.v1.PartitionLeaderService", "kip932.internal.v1.ShareCoordinatorService"


class Span:
    """One exported span."""

    def __init__(self, line: str) -> None:
        said = json.loads(line)
        self.name: str = said["name"]
        self.kind: str = said["kind"].removeprefix("SpanKind.")
        self.trace: str = said["context"]["trace_id"]
        self.id: str = said["context"]["span_id"]
        self.parent: str | None = said["parent_id"]
        self.attributes: dict[str, Any] = said["attributes"]
        self.links: list[str] = [link["context"]["span_id"] for link in said["links"]]
        self.failed: bool = said["status"]["status_code"] == "ERROR"

    def __repr__(self) -> str:
        return f"{self.name} {self.id} of {self.parent} in {self.trace[-4:]} {self.attributes}"


class Traced:
    """A cluster, a topic, and programs, all of whose processes export their spans into one folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.cluster = Cluster(QUICK, *options)
        self.topic, self.group = unique("traced"), unique("traced")
        self.letters = f"dlq.{self.topic}"
        self.environment = {
            "TRACED_BOOTSTRAP": self.cluster.bootstrap,
            "TRACED_TOPIC": self.topic,
            "TRACED_GROUP": self.group,
            "TRACED_HOOKS": str(folder / "hooks"),
        }
        with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            made = admin.create_topics(
                [
                    NewTopic(self.topic),
                    NewTopic(self.letters, config={"errors.deadletterqueue.group.enable": "true"}),
                ]
            )
            assert set(made.values()) == {None}
            configs = [
                ("errors.deadletterqueue.topic.name", self.letters),
                ("errors.deadletterqueue.copy.record.enable", "true"),
            ]
            resource = ConfigResource.group(self.group)
            changes = {resource: [AlterConfig(name, value) for name, value in configs]}
            assert set(admin.incremental_alter_configs(changes).values()) == {None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def run(self, *words: str, **environment: str) -> StartedProcess:
        return StartedProcess(words, self.folder, {**self.environment, **environment})

    def produce(self, *values: str) -> None:
        process = self.run("tests.integration.worker.traced", "produce", *values)
        assert process.ended() == 0, process.errors

    def command(self, *words: str) -> None:
        """Run `sharegroups`."""
        program = "from sharegroups.cli import run; run()"
        given = [sys.executable, "-c", program, *words, "--bootstrap-server", self.cluster.bootstrap]
        done = subprocess.run(given, capture_output=True, text=True, timeout=BOUND_S, check=False)
        assert done.returncode == 0, done.stderr

    def spans(self) -> list[Span]:
        files = sorted(self.folder.glob("spans-*"))
        return [Span(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]

    def until(self, done: Callable[[list[Span]], bool]) -> list[Span]:
        """Wait until the exported spans fulfil a condition; return them."""
        deadline = time.monotonic() + BOUND_S
        while not done(found := self.spans()):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def hooks(self) -> list[list[Any]]:
        return [json.loads(line) for line in (self.folder / "hooks").read_text().splitlines()]


BOTH = pytest.mark.parametrize(
    "traced", [(), ("--processes",)], ids=["one process", "roles as processes"], indirect=True
)


@pytest.fixture
def traced(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TRACED_FOLDER", str(tmp_path))
    with Traced(tmp_path, *getattr(request, "param", ())) as traced:
        yield traced


def children(spans: list[Span], parent: Span) -> list[Span]:
    return [span for span in spans if span.parent == parent.id]


def chain(spans: list[Span], first: Span) -> list[str]:
    """Return the names from a span down, following its only child."""
    found, below = [first.name], children(spans, first)
    while below:
        (one,) = below
        found.append(one.name)
        below = children(spans, one)
    return found


@BOTH
@pytest.mark.rule("CM-216", "CL-172", "CL-173", "CL-174")
def test_a_job_is_one_trace_from_its_producer_through_a_redelivery_to_the_database(traced: Traced) -> None:
    topic = traced.topic
    worker = traced.run("tests.integration.worker.traced", "work")
    try:
        traced.produce("job")
        traced.until(lambda spans: any(span.name == f"ack {topic}" for span in spans))
    finally:
        worker.stop()
    spans = traced.until(lambda found: sum(span.name == "append" for span in found) >= 3)
    (request,) = [span for span in spans if span.name == "request"]
    trace = [span for span in spans if span.trace == request.trace]
    (send,) = children(trace, request)
    assert (send.name, send.kind) == (f"send {topic}", "PRODUCER")
    (produce,) = [span for span in children(trace, send) if span.kind == "SERVER"]
    assert chain(trace, produce) == [f"{API}/Produce", "append"]
    jobs = sorted(
        (span for span in children(trace, send) if span.name == f"process {topic}"),
        key=lambda span: span.attributes["sharegroups.delivery_count"],
    )
    assert [(job.failed, job.attributes["sharegroups.delivery_count"]) for job in jobs] == [(True, 1), (False, 2)]
    (nack,) = children(trace, jobs[0])
    insert, ack = sorted(children(trace, jobs[1]), key=lambda span: span.name != "INSERT jobs")
    assert (insert.name, nack.name, ack.name) == ("INSERT jobs", f"nack {topic}", f"ack {topic}")
    in_process = any(span.name == f"{INTERNAL}/WriteShareGroupState" for span in spans)
    write = f"{INTERNAL}/WriteShareGroupState" if in_process else "WriteShareGroupState"
    for settle in (nack, ack):
        _, request_name, *rest = chain(trace, settle)
        assert request_name in {f"{API}/ShareAcknowledge", f"{API}/ShareFetch"}
        assert rest == [write, "append"]
    (poll,) = [span for span in spans if span.name == f"poll {topic}"][:1]
    assert poll.links == [send.id]
    assert poll.trace != request.trace


@pytest.mark.rule("CL-176", "CM-216")
def test_a_context_survives_a_dead_letter_and_its_redrive(traced: Traced) -> None:
    worker = traced.run("tests.integration.worker.traced", "work")
    try:
        traced.produce("bad")
        traced.until(lambda spans: any(span.name.startswith("nack") for span in spans))
        deadline = time.monotonic() + BOUND_S
        while not any(span.links and span.kind == "PRODUCER" for span in traced.spans()):  # the letter is being written
            assert time.monotonic() < deadline, traced.spans()
            traced.command("dlq", "redrive", "--topic", traced.letters, "--all")
        traced.until(lambda spans: any(span.name == f"ack {traced.topic}" for span in spans))
    finally:
        worker.stop()
    spans = traced.spans()
    letter = next(span for span in spans if span.name == f"send {traced.letters}")
    jobs = [span for span in spans if span.name == f"process {traced.topic}"]
    (first,) = [span for span in spans if span.name == f"send {traced.topic}" and not span.links]
    (again,) = [span for span in spans if span.name == f"send {traced.topic}" and span.links]
    assert (again.links, again.kind) == ([first.id], "PRODUCER")
    assert (letter.parent, letter.trace, letter.kind, letter.failed) == (first.id, first.trace, "PRODUCER", False)
    assert letter.attributes["messaging.consumer.group.name"] == traced.group
    assert chain(spans, letter)[1:] == ["append"]
    assert [(job.parent, job.failed) for job in jobs] == [(first.id, True), (first.id, False)]


@pytest.mark.rule("CL-174", "CL-177", "CL-178")
def test_hooks_and_spans_of_handlers_in_processes_are_made_there(traced: Traced) -> None:
    worker = traced.run("tests.integration.worker.traced", "work", TRACED_PROCESSES="yes")
    try:
        traced.produce("job", "kills")
        spans = traced.until(lambda found: sum(span.name == "INSERT jobs" for span in found) == 2)
    finally:
        worker.stop()
    hooks = traced.hooks()
    own = worker.pid
    elsewhere = {pid for event, pid, *_ in hooks if event == "before"}
    assert own not in elsewhere
    assert [event for event, pid, *_ in hooks if pid == own] == ["start", "failed", "stop"]
    failed = {(offset, error.partition(":")[0], pid == own) for event, pid, _, offset, error in
              (line for line in hooks if line[0] == "failed")}  # fmt: skip
    assert failed == {(0, "ValueError", False), (1, "JobInterrupted", True)}
    starts = [pid for event, pid, *_ in hooks if event == "start"]
    assert len(starts) == 3, "the worker, its process of handlers, and the one that took the place of the killed one"
    assert {pid for event, pid, *_ in hooks if event == "stop"} == {own, starts[-1]}
    assert worker.errors.count("the hook before for 'before' raised an exception") == 2, worker.errors
    named = {span.id for span in spans if span.name == f"process {traced.topic}"}
    assert {f"0x{span}" for event, _, span, *_ in hooks if event == "after"} <= named
