"""The arguments of a Worker and of its handlers: wrong values are refused at once."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharegroups.admin_values import ConfigEntry
from sharegroups.errors import ConfigError, InvalidGroupIdError
from sharegroups.worker import Reject, Release, Retry, Worker, WorkerError, checks, current_job
from sharegroups.worker.checks import GroupLimits, _delay_max, backoff_of, check_limits, other_backoffs

GIVEN: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "group_id": "mail"}


def blocking(_: bytes) -> None:
    """A valid handler."""


async def on_loop(_: bytes) -> None:
    """Another valid handler."""


class Called:
    """A handler object with state."""

    async def __call__(self, _: bytes) -> None:
        """Do nothing."""


@pytest.mark.rule("CL-122")
def test_a_handler_runs_where_its_kind_and_its_timeout_say() -> None:
    worker = Worker(**GIVEN)
    worker.job("a")(blocking)
    worker.job("b", timeout=2)(blocking)
    worker.job("c", processes=True)(blocking)
    worker.job("d", timeout=2)(on_loop)
    worker.job("e")(Called())
    worker.job("f")(partial(blocking))
    where = {topic: (spec.is_async, spec.in_process) for topic, spec in worker.jobs.items()}
    assert where == {
        "a": (False, False),
        "b": (False, True),
        "c": (False, True),
        "d": (True, False),
        "e": (True, False),
        "f": (False, False),
    }
    worker.use_processes()
    assert {topic for topic, spec in worker.jobs.items() if spec.in_process} == {"a", "b", "c", "f"}
    assert worker.job("g")(blocking) is blocking, "the function stays what it was, so that it can be sent to a process"


@pytest.mark.rule("CL-122")
@pytest.mark.parametrize(
    ("given", "handler", "said"),
    [
        (
            {"timeout": 5, "processes": False},
            blocking,
            "blocking has a timeout of 5 s and processes=False, but a thread",
        ),
        ({"timeout": 0}, blocking, "timeout is 0; expected seconds above 0"),
        ({"processes": True}, on_loop, "on_loop is async, and runs on the loop"),
        ({"value": "json"}, blocking, "value is 'json'; expected a function"),
        ({"retry": 3}, blocking, "retry is 3; expected a Retry"),
        ({"outcomes": {ValueError: "reject"}}, blocking, "ValueError is given 'reject'"),
        ({}, "orders", "decorates 'orders'; expected a function"),
    ],
)
def test_a_wrong_registration_is_refused_at_once(given: dict[str, Any], handler: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Worker(**GIVEN).job("orders", **given)(handler)


def no_argument() -> None:
    """An invalid handler: it takes no argument."""


def two_arguments(_: bytes, __: int) -> None:
    """An invalid handler: it takes two arguments."""


def named_argument(*, value: bytes) -> None:
    """An invalid handler: the value is passed by position."""


@pytest.mark.rule("CL-122")
@pytest.mark.parametrize("handler", [no_argument, two_arguments, named_argument])
def test_a_handler_that_takes_no_value_is_refused_with_its_place(handler: Any) -> None:
    line = handler.__code__.co_firstlineno
    with pytest.raises(ValueError, match="cannot be called with one argument, the record's value") as refused:
        Worker(**GIVEN).job("orders")(handler)
    assert str(refused.value).startswith(f"@worker.job('orders'): {handler.__name__}(")
    assert f"({__file__}:{line})" in str(refused.value)
    assert "\n" not in str(refused.value)


def wrapped(function: Any) -> Any:
    """A decorator that passes the handler more than the value."""

    @wraps(function)
    def inner(*given: Any) -> Any:
        return function(*given, 1)

    return inner


@pytest.mark.parametrize(
    "handler", [print, len, dict, partial(two_arguments, __=1), wrapped(two_arguments), lambda value=1: value]
)
def test_what_can_be_called_with_a_value_or_does_not_show_it_is_taken(handler: Any) -> None:
    worker = Worker(**GIVEN)
    worker.job("orders")(handler)
    assert worker.jobs["orders"].handler is handler


def test_the_places_are_reported_once_for_all_topics_of_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(**GIVEN, concurrency=4)
    for topic in ("a", "b", "c"):
        worker.job(topic)(blocking)
    worker.job("d")(on_loop)
    with caplog.at_level(logging.INFO, logger="sharegroups"):
        worker._log_start()
    assert [record.getMessage() for record in caplog.records] == [
        "group mail, topic a: blocking runs on threads",
        "group mail, topic b: blocking runs on threads",
        "group mail, topic c: blocking runs on threads",
        "group mail, topic d: on_loop runs on the loop",
        "group mail: 4 at once on threads, all topics together",
        "group mail: 4 at once on the loop",
    ]


def test_a_topic_has_one_handler_and_a_name() -> None:
    worker = Worker(**GIVEN)
    worker.job("orders")(blocking)
    with pytest.raises(ValueError, match="blocking has that topic already, so on_loop cannot"):
        worker.job("orders")(on_loop)
    with pytest.raises(ValueError, match="expected the name of a topic"):
        worker.job(blocking)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"concurrency": 0}, "concurrency is 0; expected a whole number of at least 1"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"max_poll_records": 5}, "max.poll.records cannot be set for a Worker: the worker decides it"),
        ({"value_deserializer": json.loads}, "use value= of @worker.job"),
        ({"group_di": "mail"}, "Did you mean 'group.id'"),
        ({"bootstrap_servers": "localhost"}, "expected host:port"),
        ({"concurency": 3}, "Worker has no argument 'concurency'. Did you mean 'concurrency'?"),
        ({"grase": 3}, "Worker has no argument 'grase'. Did you mean 'grace'?"),
        ({"prefech": 3}, "Worker has no argument 'prefech'. Did you mean 'prefetch'?"),
        ({"health_prot": 3}, "Did you mean 'health_port'?"),
        ({"helth": 3}, "unknown setting 'helth'"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_worker_is_made(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=said):
        Worker(**{**GIVEN, **given})


def test_a_worker_needs_a_group_and_a_job() -> None:
    with pytest.raises(InvalidGroupIdError):
        Worker(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(WorkerError, match="this worker has no jobs"):
        Worker(**GIVEN).run()


@pytest.mark.rule("CL-122")
@pytest.mark.parametrize("asked", [{"processes": True}, {"timeout": 3.0}], ids=["processes", "timeout"])
def test_a_worker_with_processes_is_refused_in_a_process_that_may_have_none(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    worker = Worker(**GIVEN)
    worker.job("mails", **asked)(print)
    monkeypatch.setattr(multiprocessing.current_process(), "daemon", True)
    with pytest.raises(
        WorkerError, match=r"handlers of mails .* is daemonic, .* Leave out processes=True and timeout="
    ):
        worker.run()


@pytest.mark.rule("CL-125")
def test_a_retry_limit_above_the_groups_is_refused_also_in_outcomes() -> None:
    worker = Worker(**GIVEN)
    worker.job("a", retry=Retry(limit=5))(blocking)
    check_limits(worker.jobs.values(), GroupLimits(5), "mail")
    worker.job("b", outcomes={OSError: Retry(limit=6)})(blocking)
    with pytest.raises(WorkerError, match="topic 'b' asks for Retry\\(limit=6\\), but group 'mail' archives"):
        check_limits(worker.jobs.values(), GroupLimits(5), "mail")


@pytest.mark.rule("CL-125")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retry": Retry(backoff=100, maximum=7_200)}, None),  # its fourth delay, the last, is 800 s
        ({"retry": Retry(limit=1, backoff=9_000, maximum=9_000)}, None),  # it is never tried again
        (
            {"retry": Retry(backoff=451, maximum=7_200)},
            "maximum=7200\\), so that a record may wait for 3608 s, but group",
        ),
        ({"retry": Retry(limit=4, backoff=901, maximum=7_200)}, "may wait for 3604 s"),
        ({"retry": Retry(backoff=1, multiplier=1e300, maximum=3_601)}, "Take a maximum of at most 3600, or raise"),
        ({"outcomes": {OSError: Retry(backoff=3_601, maximum=3_601)}}, "sharegroups.retry.delay.max.ms=3601000"),
        ({"outcomes": {OSError: Release(delay=3_600.5)}}, "Release\\(delay=3600.5\\).*Take a delay of at most 3600"),
        ({"outcomes": {OSError: Release(delay=2_592_001)}}, "may wait for 2592001 s.*Take a delay of at most 3600$"),
        ({"outcomes": {OSError: Release(delay=3_600), KeyError: Release, ValueError: Reject}}, None),
    ],
)
def test_a_delay_above_the_groups_is_refused_before_the_first_record_is_taken(
    given: dict[str, Any], said: str | None
) -> None:
    worker = Worker(**GIVEN)
    worker.job("a", **given)(blocking)
    check_limits(worker.jobs.values(), GroupLimits(5), "mail")
    if said is None:
        check_limits(worker.jobs.values(), GroupLimits(5, delay_max=3_600), "mail")
        return
    with pytest.raises(WorkerError, match=said) as refused:
        check_limits(worker.jobs.values(), GroupLimits(5, delay_max=3_600), "mail")
    assert "no record would wait that long" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("value", "seconds"), [("86400000", 86_400), (None, None), ("", None)])
def test_the_longest_delay_of_a_group_is_read_from_its_configs(value: str | None, seconds: float | None) -> None:
    configs = {"sharegroups.retry.delay.max.ms": SimpleNamespace(value=value)} if value != "" else {}
    assert _delay_max(cast(dict[str, ConfigEntry], configs)) == seconds


@pytest.mark.rule("CL-125")
def test_a_back_off_of_the_group_that_is_not_the_jobs_is_reported_with_what_counts_for_what() -> None:
    worker = Worker(**GIVEN)
    worker.job("a", retry=Retry(limit=3, backoff=2, maximum=60))(blocking)
    worker.job("b", retry=Retry(backoff=2, maximum=90))(blocking)
    jobs = worker.jobs.values()
    assert other_backoffs(jobs, GroupLimits(5), "mail") == []
    (line,) = other_backoffs(jobs, GroupLimits(5, "", Retry(backoff=2, maximum=60)), "mail")
    assert line == (
        "group mail has a back-off of its own (2 s, each time x 2, at most 60 s), for locks that expire and for a "
        "Release without a delay; failed jobs of topic b use this worker's back-off (2 s, each time x 2, at most 90 s)"
    )


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("500", "60000", "2.0", "0.1"), Retry(backoff=0.5, maximum=60)),
        (("0", "60000", "2.0", "0.1"), None),
        ((), None),
    ],
)
def test_the_back_off_of_a_group_is_read_from_its_configs(values: tuple[str, ...], found: Retry | None) -> None:
    names = ("initial.ms", "max.ms", "multiplier", "jitter")
    configs = {
        f"sharegroups.retry.backoff.{name}": SimpleNamespace(value=value)
        for name, value in zip(names, values, strict=False)
    }
    assert backoff_of(cast(dict[str, ConfigEntry], configs)) == found


@pytest.mark.rule("CL-125")
@pytest.mark.parametrize("own", [None, "mailer-1", ""])
def test_a_worker_is_known_by_its_process_unless_it_has_a_name(
    own: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def check_cluster(settings: dict[str, Any], *_: Any) -> None:
        """Act as if the worker were stopped before the cluster responds."""
        asked.append(settings["client.id"])

    monkeypatch.setattr(checks, "check_cluster", check_cluster)
    caplog.set_level(logging.INFO, "sharegroups.worker")
    worker = Worker(**GIVEN, client_id=own)
    worker.job("a")(blocking)

    asyncio.run(worker.serve())
    name = f"worker-{socket.gethostname()}-{os.getpid()}" if own is None else own
    assert asked == [name]
    assert caplog.messages == [f"this worker's client.id is {name}"] * bool(name)


def test_current_job_belongs_to_a_handler() -> None:
    with pytest.raises(LookupError, match="outside of a job's handler"):
        current_job()


def test_importing_a_worker_imports_no_grpc() -> None:
    """Each process for handlers imports the module that defines the worker."""
    program = (
        "import sys; from sharegroups import Worker, Retry\n"
        "Worker(bootstrap_servers='127.0.0.1:1', group_id='g').job('t', retry=Retry())(print)\n"
        "print(sorted(name for name in ('grpc', 'google.protobuf', 'click') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
