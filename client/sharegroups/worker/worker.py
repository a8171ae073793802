"""`Worker` registers handlers for topics, and runs them for the records of a share group (CL-120 to CL-128)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kip932.nearest_name import did_you_mean
from sharegroups.forks import signals
from sharegroups.worker.core.policy import Outcome, Retry, check_outcomes
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.hooks import Hooks, checked_event
from sharegroups.worker.job import RUN_AT_IMPORT_STATUS, JobSpec
from sharegroups.worker.pools import WorkerError
from sharegroups.worker.watching import JobWatch

if TYPE_CHECKING:
    from sharegroups.worker.runner import Runner

log = logging.getLogger("sharegroups.worker")
Handler = TypeVar("Handler", bound=Callable[..., Any])

_CONCURRENCY: Final = 8
_PREFETCH: Final = 500
_GRACE_S: Final = 20.0
#: The Worker's own arguments, and how similar a keyword must be to one of them (0 to 1) to count as a typo.
_ARGUMENTS: Final = (
    "concurrency", "processes", "prefetch", "grace", "cut_off_counts", "continue_trace", "health_port", "health_host",
)  # fmt: skip
_SIMILARITY_MIN: Final = 0.75
#: Settings of the consumer that only the worker sets.
_WORKER_SETTINGS: Final = (
    "share.acknowledgement.mode",
    "share.acquire.mode",
    "max.poll.records",
    "fetch.max.wait.ms",
    "value.deserializer",
)
#: The same signal again within this time, in seconds, is taken as a repetition, not as a second signal.
_ONE_SIGNAL_S: Final = 0.5
#: /healthz responds with 503 if the runner has started no turn for this long, in seconds.
_STUCK_S: Final = 30.0


class Worker:
    """Runs handlers for the records of a share group.

    The settings are the consumer's, as a dict or as keyword arguments with `_` for `.`; `bootstrap_servers` and
    `group_id` are required; `client_id` defaults to worker-<host>-<process id>. `concurrency`: how many handlers of
    each kind (async, thread, process) run at once. `prefetch`: the maximum number of records that may wait besides
    those. `grace`: how many seconds running jobs may take to end after SIGTERM. `cut_off_counts`: whether the delivery
    of a job that does not end in that time counts (False: it does not, up to ten times in a row). `continue_trace`:
    whether a job's span, with OpenTelemetry, is the child of the span that sent its record (False: it is linked to that
    span). `health_port`: the port of /healthz, /readyz and /metrics. Raises ConfigError and ValueError.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        concurrency: int = _CONCURRENCY,
        processes: bool | None = None,
        prefetch: int = _PREFETCH,
        grace: float = _GRACE_S,
        cut_off_counts: bool = True,
        continue_trace: bool = False,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        **keywords: Any,
    ) -> None:
        self.concurrency = _at_least("concurrency", concurrency, 1)
        self.prefetch = _at_least("prefetch", prefetch, 0)
        self.processes = processes
        self.grace = float(grace)
        self.cut_off_counts = bool(cut_off_counts)
        self.continue_trace = bool(continue_trace)
        self.health_port = health_port
        self.health_host = health_host
        self.settings = _checked(settings, keywords)
        self.tally = Tally([])
        #: The signal that ended `run`, or None.
        self.stopped_by: int | None = None
        self._specs: dict[str, JobSpec] = {}
        self._hooks = Hooks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._runner: Runner | None = None
        self._turned_s = 0.0

    @property
    def jobs(self) -> dict[str, JobSpec]:
        """The registered jobs, by topic."""
        return dict(self._specs)

    def job(
        self,
        topic: str,
        *,
        value: Callable[[bytes], Any] | None = None,
        timeout: float | None = None,
        retry: Retry = Retry(),  # noqa: B008 - it is frozen
        outcomes: Mapping[type[BaseException], Outcome] | None = None,
        processes: bool | None = None,
    ) -> Callable[[Handler], Handler]:
        """Register the decorated function for the records of `topic`; it is called with the decoded value.

        `value`: decodes the bytes; without it the function gets bytes. `timeout`: seconds after which an asyncio
        handler is cancelled, or the process of a blocking one is killed. `processes`: whether a blocking handler runs
        in processes; None: if the worker's `processes` is set or there is a timeout, since a thread cannot be stopped.
        `outcomes`: what an exception means, for example `{NotFound: Reject}`; after any other exception the job is
        retried as `retry` says (CL-121). Raises ValueError.
        """
        if not isinstance(topic, str) or not topic.strip():
            raise ValueError(f'@worker.job: topic is {topic!r}; expected the name of a topic, as @worker.job("orders")')
        if value is not None and not callable(value):
            raise ValueError(
                f"@worker.job({topic!r}): value is {value!r}; expected a function of bytes, as value=json.loads"
            )
        if not isinstance(retry, Retry):
            raise ValueError(f"@worker.job({topic!r}): retry is {retry!r}; expected a Retry, as retry=Retry(limit=3)")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
            raise ValueError(f"@worker.job({topic!r}): timeout is {timeout!r}; expected seconds above 0, or None")
        given = dict(outcomes or {})
        check_outcomes(given)

        def register(handler: Handler) -> Handler:
            is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
            spec = JobSpec(topic, handler, value, timeout, retry, given, is_async, in_process=False)
            self._register(spec, processes)
            return handler

        return register

    def on(self, event: str) -> Callable[[Handler], Handler]:
        """Register the decorated function as a hook: it is called at this event, for an error reporter, for example.

        `start()` and `stop()`: as the worker starts and ends, in its own process and in each process of handlers.
        `before(job)` and `after(job)`: around each handler, in its process and its thread or task.
        `failed(job, error)`: between them if the handler raised an exception that fails or rejects the job. If the job
        ended without one (its process died, its time was over, its record could not be read), `failed` gets a
        JobInterrupted in the worker's own process; `after` is not called if the handler's process is gone. `job` is
        what `current_job()` returns. Hooks are plain functions; what they raise is logged once and affects no job.
        Raises ValueError.
        """
        name = checked_event(event)

        def register(function: Handler) -> Handler:
            self._hooks.add(name, function)
            return function

        return register

    def _register(self, spec: JobSpec, processes: bool | None) -> None:
        topic, name, timeout = spec.topic, spec.name, spec.timeout
        if not callable(spec.handler):
            raise ValueError(f"@worker.job({topic!r}) decorates {spec.handler!r}; expected a function")
        _check_signature(topic, name, spec.handler)
        if topic in self._specs:
            before = self._specs[topic].name
            raise ValueError(f"@worker.job({topic!r}): {before} has that topic already, so {name} cannot")
        wants = processes if processes is not None else self.processes
        if spec.is_async and processes:
            raise ValueError(f"@worker.job({topic!r}): {name} is async, and runs on the loop; leave out processes=True")
        if not spec.is_async and timeout is not None and wants is False:
            raise ValueError(
                f"@worker.job({topic!r}): {name} has a timeout of {timeout:g} s and processes=False, but a thread "
                "cannot be stopped. Leave out processes=False, so that it runs in processes, which can be ended, or "
                "make it async"
            )
        in_process = not spec.is_async and (bool(wants) or timeout is not None)
        self._specs[topic] = replace(spec, in_process=in_process)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Set these settings of the consumer in addition to those given before, and in place of equal ones, as
        `--command-config` does. It has no effect on a worker that runs. Raises ConfigError."""
        self.settings = _checked({**self.settings, **settings}, {})

    def use_processes(self) -> None:
        """Run all blocking handlers in processes, as `--processes` does."""
        for topic, spec in self._specs.items():
            if not spec.is_async:
                self._specs[topic] = replace(spec, in_process=True)

    def run(self) -> None:
        """Work until SIGTERM or Ctrl-C. Running jobs then have `grace` seconds to end, and other records are released.

        A second signal ends the process immediately. If the program has set up no logging, the log goes to standard
        error, with time and level. Raises WorkerError when the worker cannot start or continue, KafkaError when the
        cluster refuses it.
        """
        if multiprocessing.current_process().name == "sharegroups-jobs":
            sys.exit(RUN_AT_IMPORT_STATUS)  # the worker reports the cause once for all of its processes
        from sharegroups.loop_thread import ignore_poller_noise, new_loop  # noqa: PLC0415 - see sharegroups.__init__
        from sharegroups.worker.logs import logging_to_stderr  # noqa: PLC0415

        with logging_to_stderr(), asyncio.Runner(loop_factory=new_loop) as runner:
            loop = runner.get_loop()
            loop.set_exception_handler(ignore_poller_noise)
            with self._signals(loop):
                runner.run(self.serve())

    async def serve(self) -> None:
        """Work as `run` does, but in your own event loop and without handling signals; `stop` ends it.

        Cancelling its task ends it as `stop` does: running jobs have `grace` seconds to end, and then the cancellation
        is propagated. A second cancellation cuts the jobs off immediately (CL-127).
        """
        if not self._specs:
            raise WorkerError('this worker has no jobs: register one with @worker.job("topic") above a function')
        self._check_parent()
        from sharegroups.worker.checks import check_cluster  # noqa: PLC0415 - gRPC is imported here, not for a process of handlers
        from sharegroups.worker.health import health_port  # noqa: PLC0415
        from sharegroups.worker.logs import missing_topics_logged_once  # noqa: PLC0415
        from sharegroups.worker.runner import Runner  # noqa: PLC0415
        from sharegroups.worker.standstill import standstill_logged  # noqa: PLC0415

        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.tally = Tally(list(self._specs))
        self._take_name()
        self._turned_s = self._loop.time()
        async with AsyncExitStack() as stack:
            stack.callback(self._hooks.run, "stop")
            self._hooks.run("start")
            watch, specs = self._watched()
            if self.health_port is not None:
                served = health_port(self.health_host, self.health_port, self._healthy, self._ready, self.tally.text)
                await stack.enter_async_context(served)
            found = await check_cluster(self.settings, list(self._specs.values()), self._stopping)
            if found is None:
                return
            limits, missing = found
            stack.enter_context(missing_topics_logged_once(missing, self._loop.time))
            self._runner = Runner(
                self.settings,
                specs,
                concurrency=self.concurrency,
                prefetch=self.prefetch,
                grace=self.grace,
                cut_off_counts=self.cut_off_counts,
                limits=limits,
                tally=self.tally,
                watch=watch,
            )
            if self._stopping.is_set():
                self._runner.stop()
            self._log_start()
            stack.enter_context(standstill_logged(self._runner.at_work))
            try:
                await self._runner.run()
            finally:
                self._runner = None
                log.info("stopped: %s", self.tally.line())

    def _watched(self) -> tuple[JobWatch, dict[str, JobSpec]]:
        """Return what watches the jobs, and the jobs with it: whether there is something to watch may change, and may
        differ in a process of handlers."""
        from sharegroups.config import consumer_config  # noqa: PLC0415 - light, but not needed to import us

        config = consumer_config(self.settings, {})
        watch = JobWatch(
            self._hooks,
            config["opentelemetry.enable"],
            config["client.id"],
            config["group.id"],
            self.continue_trace,
        )
        return watch, {topic: replace(spec, watch=watch) for topic, spec in self._specs.items()}

    def _check_parent(self) -> None:
        """Raise WorkerError if handlers must run in processes but this process may not have children."""
        topics = [topic for topic, spec in self._specs.items() if spec.in_process]
        process = multiprocessing.current_process()
        if topics and process.daemon:
            raise WorkerError(
                f"handlers of {', '.join(topics)} are to run in processes, but this process, {process.name}, is "
                "daemonic, as the children of Celery and multiprocessing.Pool are, and Python lets it have none. Leave "
                "out processes=True and timeout=, so that they run on threads, or start the worker as a program of its "
                "own"
            )

    def progress(self) -> str:
        """Return the counts of jobs so far, in one line."""
        return self.tally.line()

    def stop(self) -> None:
        """Shut down `run` or `serve` cleanly, as SIGTERM does. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._stopping is not None:
            self._stopping.set()
        if self._runner is not None:
            self._runner.stop()

    def _take_name(self) -> None:
        """Set a `client.id` that identifies this worker's process, unless the user set one (CL-125)."""
        if self.settings.get("client.id") is None:
            self.settings["client.id"] = f"worker-{socket.gethostname()}-{os.getpid()}"
        if name := self.settings["client.id"]:
            log.info("this worker's client.id is %s", name)

    def _log_start(self) -> None:
        group, by_kind = self.settings["group.id"], dict[str, list[JobSpec]]()
        for spec in self._specs.values():
            where = "on the loop" if spec.is_async else "in processes" if spec.in_process else "on threads"
            by_kind.setdefault(where, []).append(spec)
            log.info("group %s, topic %s: %s runs %s", group, spec.topic, spec.name, where)
        for where, specs in by_kind.items():
            together = ", all topics together" if len(specs) > 1 else ""
            log.info("group %s: %d at once %s%s", group, self.concurrency, where, together)

    def _healthy(self) -> bool:
        return self._runner is None or self._runner.turned_s_ago < _STUCK_S

    def _ready(self) -> bool:
        return self._runner is not None and self._runner.is_ready

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Inside the block, stop the worker at the first SIGTERM or SIGINT, and end the process at the second.

        The same signal again within half a second is ignored, because some supervisors signal a process, and then its
        group.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        stopped_s = 0.0

        def stop(number: int, _frame: FrameType | None) -> None:
            nonlocal stopped_s
            now_s = time.monotonic()
            if self.stopped_by == number and now_s < stopped_s + _ONE_SIGNAL_S:
                return
            if self.stopped_by is not None:
                os.write(2, b"a second signal: ending at once; running jobs are done again\n")
                os._exit(128 + number)
            self.stopped_by, stopped_s = number, now_s
            loop.call_soon_threadsafe(self._stop)

        with signals(stop):
            yield


def _checked(settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the consumer's settings. Raises ConfigError, also for settings that only the worker sets."""
    from sharegroups.config import consumer_config, given_settings  # noqa: PLC0415 - light, but not needed to import us
    from sharegroups.errors import ConfigError  # noqa: PLC0415

    for name in keywords:
        if hint := did_you_mean(name, _ARGUMENTS, _SIMILARITY_MIN):
            raise ConfigError(f"Worker has no argument {name!r}.{hint}")
    given = given_settings(settings, keywords, "Worker")
    for name in _WORKER_SETTINGS:
        if name in given:
            instead = "; use value= of @worker.job" if name == "value.deserializer" else ": the worker decides it"
            raise ConfigError(f"{name} cannot be set for a Worker{instead}")
    consumer_config(given, {}).check_bootstrap()
    return given


def _check_signature(topic: str, name: str, handler: Callable[..., Any]) -> None:
    """Raise ValueError if the handler cannot be called with one argument. A handler with an unknown signature is
    accepted."""
    try:
        signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError:
        code = getattr(handler, "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        raise ValueError(
            f"@worker.job({topic!r}): {name}{signature}{where} cannot be called with one argument, the record's value; "
            f"write def {getattr(handler, '__name__', 'handler')}(value)"
        ) from None


def _at_least(name: str, given: object, low: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < low:
        raise ValueError(f"Worker: {name} is {given!r}; expected a whole number of at least {low}")
    return given
