"""One share consumer of the demo, in a process of its own: arguments BOOTSTRAP TOPIC GROUP NUMBER [INPUT].

For each record it prints a line of JSON with the result, and only then acknowledges. So a result may be reported twice,
but is never lost. It leaves in good order when its standard input closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from share_node.demo.jobs import BrokenRecordError, Job, fails_first_attempt, job_for
from sharegroups import AcknowledgeType, ShareConsumer, WakeupError

if TYPE_CHECKING:
    from sharegroups import Message

_ACKNOWLEDGE = {
    "accepted": AcknowledgeType.ACCEPT,
    "rejected": AcknowledgeType.REJECT,
    "released": AcknowledgeType.RELEASE,
}


def outcome_of(job: Job, message: Message) -> tuple[str, Counter[str]]:
    """How to acknowledge a record: release it at an injected failure, reject a broken one, else accept it with its
    tally."""
    key = (message.key() or b"").decode()
    if message.delivery_count() == 1 and fails_first_attempt(key):
        return "released", Counter()
    try:
        return "accepted", job.process(message.value() or b"")
    except BrokenRecordError:
        return "rejected", Counter()


def main(arguments: Sequence[str]) -> int:
    """Consume until standard input closes."""
    bootstrap, topic, group, number = arguments[:4]
    job = job_for(arguments[4] if len(arguments) > 4 else None)
    stop = threading.Event()
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"demo-worker-{number}",
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": 25,
        }
    )

    def leave_when_told() -> None:
        sys.stdin.read()
        stop.set()
        consumer.wakeup()

    threading.Thread(target=leave_when_told, daemon=True).start()
    with consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            try:
                messages = consumer.poll(1.0)
            except WakeupError:
                break
            for message in messages:
                outcome, tally = outcome_of(job, message)
                report = {
                    "partition": message.partition(),
                    "offset": message.offset(),
                    "count": message.delivery_count(),
                    "outcome": outcome,
                    "tally": tally,
                }
                try:
                    sys.stdout.write(json.dumps(report) + "\n")
                    sys.stdout.flush()
                except BrokenPipeError:  # the demo was killed and reads no reports, so leave the group
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                    return 1
                consumer.acknowledge(message, _ACKNOWLEDGE[outcome])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
