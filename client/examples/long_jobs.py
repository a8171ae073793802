"""Jobs that may take longer than their lock, without a Worker: `python long_jobs.py [host:port] [how many]`.

    sharegroups topics create videos
    seq 30 10 60 | sharegroups produce videos

Each record's value is the number of seconds that its job takes. Meanwhile the client renews the record's lock in the
background.
"""

import sys
import time

from sharegroups import AcknowledgeType, ShareConsumer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7932"
left = int(sys.argv[2]) if len(sys.argv) > 2 else 10

settings = {
    "bootstrap.servers": bootstrap,
    "group.id": "encoders",
    "share.acknowledgement.mode": "explicit",  # keep_alive needs explicit mode
    "share.acquire.mode": "record_limit",
    "max.poll.records": 1,
}

with ShareConsumer(settings) as consumer:
    consumer.subscribe(["videos"])
    while left:
        for message in consumer.poll(timeout=1):
            with consumer.keep_alive(message) as kept:
                try:
                    time.sleep(float(message.value()))  # the job
                    outcome = AcknowledgeType.ACCEPT
                except ValueError:
                    outcome = AcknowledgeType.REJECT  # the value is not a number, so a retry cannot help
                consumer.acknowledge(message, outcome)
                consumer.commit_sync()
                print(
                    message.value().decode(),
                    "delivery",
                    message.delivery_count(),
                    "lost" if kept.lost else outcome.name,
                )
            left -= 1
