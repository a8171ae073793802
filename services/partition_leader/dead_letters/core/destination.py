"""Decides where a group's dead letters go at this moment, or why they cannot be written (PL-906, PL-917, PL-918)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from kip932.ids import valid_topic_name

TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
PREFIX_CONFIG: Final = "errors.deadletterqueue.topic.name.prefix"
ENABLE_CONFIG: Final = "errors.deadletterqueue.group.enable"
AUTO_CREATE_CONFIG: Final = "errors.deadletterqueue.auto.create.topics.enable"


#: The maximum length of a chain of dead letters: that of a record, that of this dead letter if it fails too, and so on
#: (PL-923).
HOPS_MAX: Final = 4


class Reason(StrEnum):
    """Why a dead letter is not written; used as a metric label and a log field."""

    METADATA = "metadata"  # this node's view of the cluster is incomplete
    SWITCHED_OFF = "switched_off"
    LOOP = "loop"
    INVALID_NAME = "invalid_name"
    NOT_ENABLED = "not_enabled"
    TOPIC_MISSING = "topic_missing"
    WRONG_PREFIX = "wrong_prefix"
    NOT_CREATED = "not_created"
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"  # the leader of the DLQ partition, or its store, currently accepts no dead letters
    BUSY = "busy"  # too many rounds for that leader are pending already
    SOURCE_UNREADABLE = "source_unreadable"


#: Reasons why a dead letter is never written, whatever the policy: its record is just archived (PL-917, PL-918).
GIVEN_UP: Final = frozenset({Reason.SWITCHED_OFF, Reason.LOOP})
#: Reasons that may go away by themselves: even the policy `drop` retries after these, up to its last attempt (PL-907).
TRANSIENT: Final = frozenset(
    {Reason.METADATA, Reason.NOT_CREATED, Reason.UNREACHABLE, Reason.BUSY, Reason.SOURCE_UNREADABLE}
)


class Failure(NamedTuple):
    """Why dead letters were not written, and what an operator can do about it."""

    reason: Reason
    text: str
    advice: str

    @property
    def with_advice(self) -> str:
        """The reason and the advice in one text, for an operator who asks why dead letters are not written yet."""
        return f"{self.text} (what to do: {self.advice})"


class Queue(NamedTuple):
    """A group's dead-letter configs. `topic`: empty if it has no dead-letter queue. `drops`: whether the policy is
    `drop` (PL-907)."""

    topic: str = ""
    copies: bool = False
    drops: bool = False


class QueueTopic(NamedTuple):
    """A topic as a destination."""

    topic_id: bytes
    partitions: int
    enabled: bool
    max_message_bytes: int


class View(NamedTuple):
    """What this node knows at this moment. `complete_since_ms`: this node has seen all metadata up to this time.
    `served`: whether share.version is 2 or higher."""

    complete_since_ms: int
    served: bool
    queue: Queue
    topic: QueueTopic | None
    prefix: str
    creates: bool


class Destination(NamedTuple):
    """Where dead letters go. `topic`: None if it must be created first (PL-908)."""

    name: str
    topic: QueueTopic | None
    copies: bool


def destination(view: View, source: str, since_ms: int) -> Destination | Failure:
    """Return where dead letters of topic `source` go, or the first check of PL-906 that fails. `since_ms`: when the
    oldest of them was submitted. If this node has not seen all metadata up to then, a failed check is reported as
    METADATA."""
    failure = _without_a_queue(view, source) or _of_the_name(view)
    if failure is not None and view.complete_since_ms < since_ms:
        text = f"this node's view of the metadata is too old to decide; by it, {failure.text}"
        return Failure(Reason.METADATA, text, "nothing: it reads the metadata every second")
    return failure or Destination(view.queue.topic, view.topic, view.queue.copies)


def _without_a_queue(view: View, source: str) -> Failure | None:
    name = view.queue.topic
    if not view.served or not name:
        why = f"{TOPIC_CONFIG} is empty" if view.served else "share.version is below 2"
        return Failure(Reason.SWITCHED_OFF, f"the dead-letter queue of the group is switched off: {why}", "nothing")
    if name == source:
        text = f"{name!r} is the topic that the records come from, and has them already; writing them there would loop"
        return Failure(Reason.LOOP, text, f"set {TOPIC_CONFIG} of the group to another topic")
    return None


def circling(source: str, queue: str) -> Failure:
    """Return the failure for records of topic `source` that are already the HOPS_MAXth dead letter of their chain."""
    text = (
        f"the record is a dead letter itself, the {HOPS_MAX}th in a row; groups whose dead-letter topics lead to each "
        f"other would write dead letters forever. It remains in topic {source!r}"
    )
    advice = f"set {TOPIC_CONFIG} of the groups that read {source!r} and {queue!r} to topics that none of them reads"
    return Failure(Reason.LOOP, text, advice)


def _of_the_name(view: View) -> Failure | None:
    name, topic = view.queue.topic, view.topic
    if not valid_topic_name(name):
        text = f"{name!r} cannot be the name of a dead-letter topic"
        return Failure(Reason.INVALID_NAME, text, f"set {TOPIC_CONFIG} of the group to a legal name")
    if topic is not None and not topic.enabled:
        text = f"topic {name!r} is not enabled as a dead-letter topic"
        advice = f"sharegroups configs alter --topic {name} --add-config {ENABLE_CONFIG}=true"
        return Failure(Reason.NOT_ENABLED, text, advice)
    if topic is None and not view.creates:
        text = f"topic {name!r} does not exist, and {AUTO_CREATE_CONFIG} is false"
        return Failure(Reason.TOPIC_MISSING, text, f"create it with {ENABLE_CONFIG}=true")
    if not name.startswith(view.prefix):
        text = f"topic {name!r} does not begin with {view.prefix!r}, the value of {PREFIX_CONFIG}"
        return Failure(Reason.WRONG_PREFIX, text, f"change {PREFIX_CONFIG}, or the topic that {TOPIC_CONFIG} names")
    return None
