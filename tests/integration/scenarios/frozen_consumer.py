"""A consumer that freezes. Usage: `python -m tests.integration.scenarios.frozen_consumer HOW BOOTSTRAP GROUP TOPIC`.

It prints lines of JSON with the records it got and the results of its acknowledgements. After each poll that returned
records it waits for an input line. HOW is `process`: a blocking consumer, which heartbeats meanwhile, for a test that
stops the process; `loop`: an asyncio consumer whose event loop is blocked meanwhile; `parked`: like `loop`, and blocked
once while its fetch is in flight.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from sharegroups import AcknowledgeType, Messages, ShareConsumer, aio

#: Longer than the tests wait, so that a fetch without records stays parked at the leader.
FETCH_WAIT_MS = 60_000


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def polled(messages: Messages) -> None:
    say(polled=[(message.offset(), message.delivery_count()) for message in messages])


def committed(results: Any) -> None:
    say(committed=sorted("" if error is None else type(error).__name__ for error in results.values()))


def settings(words: list[str]) -> dict[str, Any]:
    bootstrap, group, _ = words
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
        "fetch_max_wait_ms": FETCH_WAIT_MS,
    }


def blocking(words: list[str]) -> None:
    with ShareConsumer(**settings(words)) as consumer:
        consumer.subscribe(words[-1:])
        while True:
            if messages := consumer.poll(1):
                polled(messages)
                sys.stdin.readline()
                for message in messages:
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                committed(consumer.commit_sync())


async def on_a_loop(words: list[str], parked: bool) -> None:
    async with aio.ShareConsumer(**settings(words)) as consumer:
        consumer.subscribe(words[-1:])
        blocker = asyncio.get_running_loop().create_task(_block()) if parked else None
        while True:
            if messages := await consumer.poll(1):
                polled(messages)
                if not parked:
                    sys.stdin.readline()
                for message in messages:
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                committed(await consumer.commit_sync())
            if blocker is not None and blocker.done():
                blocker.result()


async def _block() -> None:
    await asyncio.sleep(3)
    say(blocked=True)
    sys.stdin.readline()


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    how, *words = sys.argv[1:]
    if how == "process":
        blocking(words)
    else:
        asyncio.run(on_a_loop(words, how == "parked"))


if __name__ == "__main__":
    main()
