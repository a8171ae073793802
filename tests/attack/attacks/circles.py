"""Two groups with each other's topics as dead-letter topics: records that both reject must not circulate forever."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from kip932.ids import OFFSET_LATEST, RESOURCE_GROUP
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from tests.attack.definition import Attack, Target

_RECORDS: Final = 20
#: PL-923: after this many dead letters in a row, no further one is written.
_LETTERS_IN_A_ROW: Final = 4
_EXPECTED: Final = _RECORDS * (1 + _LETTERS_IN_A_ROW)
#: The time by which all of them must have arrived. Without the limit, 20 records produced 35,800 dead letters in 15 s.
_END_S: Final = 60.0


def _circle(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Reject every record for `seconds`, and until all expected ones have arrived; then count what is stored."""
    bootstrap = target.dial.settings(target.coordinator())
    topics = [f"dlq.circle-{rng.getrandbits(40):010x}" for _ in range(2)]
    groups = [f"of-{topic}" for topic in topics]
    with Admin(bootstrap) as admin, ExitStack() as stack:
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        _none_refused(admin.create_topics([NewTopic(topic, 1, config=enabled) for topic in topics]))
        stack.callback(admin.delete_topics, topics)
        for group, other in zip(groups, reversed(topics), strict=True):
            configs = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": other}
            changes = [AlterConfig(name, value) for name, value in configs.items()]
            _none_refused(admin.incremental_alter_configs({ConfigResource(RESOURCE_GROUP, group): changes}))
        with Producer(bootstrap) as producer:
            for number in range(_RECORDS):
                producer.produce(topics[0], str(number))
        _reject_all(bootstrap, dict(zip(groups, topics, strict=True)), seconds)
        ends = admin.list_offsets({TopicPartition(topic, 0): OFFSET_LATEST for topic in topics})
        stored = sum(end for end in ends.values() if isinstance(end, int))
        _none_refused(admin.delete_share_groups(groups))
    assert stored == _EXPECTED, f"{_RECORDS} records left {stored - _RECORDS} dead letters, not {_EXPECTED - _RECORDS}"
    return f"{_RECORDS} records left {stored - _RECORDS} dead letters, and no more"


def _reject_all(bootstrap: Mapping[str, str], topics: Mapping[str, str], seconds: float) -> None:
    """Let one member of each group reject its topic's records."""
    came: set[tuple[str, int]] = set()
    began = time.monotonic()
    with ExitStack() as stack:
        members = []
        for group, topic in topics.items():
            settings = {**bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
            members.append(stack.enter_context(ShareConsumer(settings)))
            members[-1].subscribe([topic])
        while len(came) < _EXPECTED or time.monotonic() - began < seconds:
            assert len(came) <= _EXPECTED, f"{len(came)} records and dead letters arrived; at most {_EXPECTED} may"
            assert time.monotonic() - began < max(seconds, _END_S), (
                f"of {_EXPECTED} records and dead letters, {len(came)} arrived"
            )
            for member in members:
                for message in member.poll(timeout=0.1):
                    came.add((message.topic(), message.offset()))
                    member.acknowledge(message, AcknowledgeType.REJECT)
                member.commit_sync()  # records whose rejection is refused are redelivered


def _none_refused(errors: Mapping[Any, Exception | None]) -> None:
    refused = {str(name): str(error) for name, error in errors.items() if error is not None}
    assert not refused, f"refused: {refused}"


CIRCLE_ATTACKS: Final = (
    Attack(
        "dead-letter-circle",
        "Two groups whose dead-letter topics are each other's topics reject whatever comes",
        _circle,
    ),
)
