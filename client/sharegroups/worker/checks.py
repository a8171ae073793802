"""Checks, before a worker starts, the group's limits and back-off, and whether its topics exist (CL-125)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kip932.nearest_name import did_you_mean
from sharegroups.admin_values import ConfigEntry, ConfigResource
from sharegroups.aio import Admin
from sharegroups.config import ADMIN
from sharegroups.connection.core.missing_rights import may_not_work
from sharegroups.connection.core.stall_diagnosis import REPEAT_S
from sharegroups.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaError,
    RequestTimedOutError,
    RetriableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from sharegroups.worker.acknowledging import DELAY_MAX_S
from sharegroups.worker.core.policy import Release, Retry
from sharegroups.worker.job import JobSpec
from sharegroups.worker.pools import WorkerError

log = logging.getLogger("sharegroups.worker")

_LIMIT: Final = "share.delivery.count.limit"
_DELAY_MAX: Final = "sharegroups.retry.delay.max.ms"
_RESET: Final = "share.auto.offset.reset"
_LETTERS: Final = "errors.deadletterqueue.topic.name"
_BACKOFF: Final = "sharegroups.retry.backoff."
#: How long one request may take, in ms, and how long to wait before the next one, in seconds.
_ASK_MS: Final = 3_000
_RETRY_S: Final = 1.0
#: The delivery count limit assumed when the group's cannot be read: Kafka's default.
DEFAULT_DELIVERY_LIMIT: Final = 5


class GroupLimits(NamedTuple):
    """The limits of a group. `deliveries`: the number of deliveries after which the leader archives a record.
    `letters_to`: the dead-letter topic, or "". `backoff`: the group's own back-off (PL-936); None if it has none or it
    is unknown. `delay_max`: the longest delay, s (PL-930); None if it is unknown or the cluster does not support
    delays. `reset`: the value of share.auto.offset.reset, which determines where a new group starts; "" if unknown."""

    deliveries: int
    letters_to: str = ""
    backoff: Retry | None = None
    delay_max: float | None = None
    reset: str = ""


async def check_cluster(
    settings: Mapping[str, Any], specs: Iterable[JobSpec], stopping: asyncio.Event
) -> tuple[GroupLimits, frozenset[str]] | None:
    """Query the cluster, waiting until it answers. Returns None if `stopping` is set first.

    Otherwise returns the group's limits, and the topics that do not exist yet, after logging them. Raises WorkerError
    for a policy that the group does not allow, or a topic whose description cannot be read.
    """
    known = {setting.name for setting in ADMIN}
    own = {name: value for name, value in settings.items() if name in known} | {"default.api.timeout.ms": _ASK_MS}
    where, unreachable_since_s, warn_at_s = settings.get("bootstrap.servers"), 0.0, 0.0
    clock = asyncio.get_running_loop().time
    async with Admin(own) as admin:
        while not stopping.is_set():
            try:
                topics = [spec.topic for spec in specs]
                limits = await _limits(admin, str(settings["group.id"]), topics)
                missing = await _topics(admin, topics)
            except (RetriableError, RequestTimedOutError) as error:
                now_s = clock()
                if now_s >= warn_at_s:
                    lasted = f", for {now_s - unreachable_since_s:.0f} s now" if unreachable_since_s else ""
                    log.warning("the cluster at %s does not answer yet, waiting for it%s: %s", where, lasted, error)
                    warn_at_s = now_s + REPEAT_S
                unreachable_since_s = unreachable_since_s or now_s
                await _pause(stopping)
                continue
            if unreachable_since_s:
                log.info("the cluster at %s answers, after %.0f s", where, clock() - unreachable_since_s)
            check_limits(specs, limits, str(settings["group.id"]))
            await _log_new_group(admin, str(settings["group.id"]), limits.reset)
            for line in other_backoffs(specs, limits, str(settings["group.id"])):
                log.info("%s", line)
            return limits, missing
    return None


def check_limits(specs: Iterable[JobSpec], limits: GroupLimits, group: str) -> None:
    """Raise WorkerError for a Retry limit above the group's delivery count limit, or a delay above its maximum."""
    for spec in specs:
        for retry in (spec.retry, *spec.outcomes.values()):
            _check_delay(spec, retry, limits, group)
            limit = getattr(retry, "limit", None)
            if limit is not None and limit > limits.deliveries:
                raise WorkerError(
                    f"the job of topic {spec.topic!r} asks for Retry(limit={limit}), but group {group!r} archives a "
                    f"record after {limits.deliveries} deliveries ({_LIMIT}), and the group's limit counts. Lower the "
                    f"limit, leave it out, or raise the group's: sharegroups configs alter --group {group} "
                    f"--add-config {_LIMIT}={limit}"
                )


def _check_delay(spec: JobSpec, outcome: object, limits: GroupLimits, group: str) -> None:
    delay = _longest_delay(outcome, limits.deliveries)
    if limits.delay_max is None or delay <= limits.delay_max:
        return
    asks, less = f"Release(delay={delay:.10g})", "delay"
    if isinstance(outcome, Retry):
        asks, less = f"Retry(backoff={outcome.backoff:.10g}, maximum={outcome.maximum:.10g})", "maximum"
    advice = f"Take a {less} of at most {limits.delay_max:.10g}"
    if delay <= DELAY_MAX_S:
        value = math.ceil(delay * 1000)
        advice += f", or raise the group's: sharegroups configs alter --group {group} --add-config {_DELAY_MAX}={value}"
    raise WorkerError(
        f"the job of topic {spec.topic!r} asks for {asks}, so that a record may wait for {delay:.10g} s, but group "
        f"{group!r} allows no delay above {limits.delay_max:.10g} s ({_DELAY_MAX}): no record would "
        f"wait that long. {advice}"
    )


def _longest_delay(outcome: object, deliveries: int) -> float:
    """Return the longest delay that an outcome can ask for, in seconds. There is no delay after the last delivery."""
    if isinstance(outcome, Retry):
        last = deliveries if outcome.limit is None else min(outcome.limit, deliveries)
        return outcome.delay_of(last - 1, 0) if last > 1 else 0
    return outcome.delay or 0 if isinstance(outcome, Release) else 0


def other_backoffs(specs: Iterable[JobSpec], limits: GroupLimits, group: str) -> list[str]:
    """Return a line for each job whose delays differ from the group's own back-off; it says which applies when."""
    if limits.backoff is None:
        return []
    return [
        f"group {group} has a back-off of its own ({_words(limits.backoff)}), for locks that expire and for a Release "
        f"without a delay; failed jobs of topic {spec.topic} use this worker's back-off ({_words(spec.retry)})"
        for spec in specs
        if _words(spec.retry) != _words(limits.backoff)
    ]


def _words(retry: Retry) -> str:
    return f"{retry.backoff:g} s, each time x {retry.multiplier:g}, at most {retry.maximum:g} s"


def backoff_of(found: Mapping[str, ConfigEntry]) -> Retry | None:
    """Return the back-off in a group's configs; None if it is off, or if the cluster does not support it."""
    values = {name: found[_BACKOFF + name].value for name in _BACKOFFS if _BACKOFF + name in found}
    if len(values) < len(_BACKOFFS) or not float(values["initial.ms"] or 0):
        return None
    initial_ms, maximum_ms, multiplier, jitter = (float(values[name] or 0) for name in _BACKOFFS)
    return Retry(None, initial_ms / 1000, maximum_ms / 1000, multiplier, jitter)


def _delay_max(found: Mapping[str, ConfigEntry]) -> float | None:
    """Return the longest delay that a group allows, in seconds; None when the cluster does not support delays."""
    value = found[_DELAY_MAX].value if _DELAY_MAX in found else None
    return None if value is None else int(value) / 1000


_BACKOFFS: Final = ("initial.ms", "max.ms", "multiplier", "jitter")


async def _limits(admin: Admin, group: str, topics: list[str]) -> GroupLimits:
    """Return the group's limits. If its configs cannot be read, log that and assume the default limit.

    Raises RetriableError.
    """
    resource = ConfigResource.group(group)
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, RetriableError):
        raise found
    if isinstance(found, KafkaError) or _LIMIT not in found:
        if isinstance(found, GroupAuthorizationFailedError):
            found = may_not_work(found, group, topics)
        why = found if isinstance(found, KafkaError) else f"it has no {_LIMIT}"
        log.warning(
            "the configs of group %s cannot be read (%s); taking %s=%d", group, why, _LIMIT, DEFAULT_DELIVERY_LIMIT
        )
        return GroupLimits(DEFAULT_DELIVERY_LIMIT)
    letters_to = found[_LETTERS].value if _LETTERS in found else None
    limit, reset = int(found[_LIMIT].value or DEFAULT_DELIVERY_LIMIT), found[_RESET].value if _RESET in found else None
    return GroupLimits(limit, letters_to or "", backoff_of(found), _delay_max(found), reset or "")


async def _log_new_group(admin: Admin, group: str, reset: str) -> None:
    """Log that a group does not exist yet, where it will start, and the most similar existing name; ignore failed
    queries.

    With a typo in the group's name, every job would run again, or none would run.
    """
    try:
        described = (await admin.describe_share_groups([group]))[group]
        if not isinstance(described, GroupIdNotFoundError):
            return
        others = [one.group_id for one in (await admin.list_groups()).valid() if one.group_id != group]
    except KafkaError:
        return
    begins = {
        "earliest": "with the earliest record of each topic, including jobs that other groups have done",
        "latest": "at the end of each topic, without the jobs that are there already",
    }.get(reset, "in each topic as its configs say")
    text = f"group {group} is new: it begins {begins} ({_RESET}={reset or 'unknown'})"
    if hint := did_you_mean(group, others):
        log.warning("%s.%s", text, hint)
    else:
        log.info("%s", text)


async def _topics(admin: Admin, names: list[str]) -> frozenset[str]:
    """Log and return the topics that do not exist. Raises WorkerError for a topic that cannot be read, unless for a
    missing permission, which the consumer reports (CL-143)."""
    missing = set()
    for name, described in (await admin.list_topics(names)).items():
        error = described.error
        if isinstance(error, UnknownTopicOrPartitionError):
            missing.add(name)
            hint = did_you_mean(name, await admin.list_topics())
            log.warning("topic %r does not exist.%s Waiting for it: sharegroups topics create %s", name, hint, name)
        elif error is not None and not isinstance(error, RetriableError | TopicAuthorizationFailedError):
            raise WorkerError(f"topic {name!r} cannot be read: {error}")
    return frozenset(missing)


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_RETRY_S):
            await stopping.wait()
    except TimeoutError:
        pass
