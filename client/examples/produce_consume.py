"""Produce ten records and consume them as a member of a share group: `python produce_consume.py [host:port]`."""

import sys

from sharegroups import KafkaError, Producer, ShareConsumer, TopicIdPartition

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7932"

with Producer(bootstrap_servers=bootstrap) as producer:
    for number in range(10):
        producer.produce("orders", f"order {number}")


def acknowledged(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
    """A later poll or commit_sync calls this for each partition."""
    if error:
        print(f"REFUSED, so they are delivered again: {offsets}: {error}")


jobs = {"share.acquire.mode": "record_limit", "max.poll.records": 1}  # one at a time; see docs/howto/jobs.md
with ShareConsumer(jobs, bootstrap_servers=bootstrap, group_id="workers") as consumer:
    consumer.set_acknowledgement_commit_callback(acknowledged)
    consumer.subscribe(["orders"])
    seen = 0
    while seen < 10:
        for message in consumer.poll(timeout=1):  # the next poll, or commit_sync, accepts what this one returned
            print(message.offset(), message.value().decode(), "delivery", message.delivery_count())
            seen += 1
    consumer.commit_sync()
