"""Jobs that may take longer than their lock: `python long_jobs.py [host:port] [how many]`.

    sharegroups topics create videos
    seq 30 10 60 | sharegroups produce videos

Each record's value is how many seconds its job takes. The job runs in a thread. The main thread renews the record's
lock after every third of it, and learns when a renewal came too late.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

from sharegroups import AcknowledgeType, ShareConsumer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7932"
left = int(sys.argv[2]) if len(sys.argv) > 2 else 10

settings = {
    "bootstrap.servers": bootstrap,
    "group.id": "encoders",
    "share.acknowledgement.mode": "explicit",  # only there can locks be renewed
    "share.acquire.mode": "record_limit",
    "max.poll.records": 1,
}


def run(seconds: bytes) -> None:
    """The job; the exception that it raises decides how its record is acknowledged."""
    time.sleep(float(seconds))


with ShareConsumer(settings) as consumer, ThreadPoolExecutor(1) as pool:
    consumer.subscribe(["videos"])
    while left:
        for polled in consumer.poll(timeout=1):
            message = polled
            job = pool.submit(run, message.value())
            while not wait([job], timeout=(consumer.acquisition_lock_timeout_ms() or 30_000) / 3000).done:
                consumer.acknowledge(message, AcknowledgeType.RENEW)
                refused = [error for error in consumer.commit_sync().values() if error]
                if refused:
                    print(message.value().decode(), "came too late, another worker gets it:", refused[0])
                    job.cancel()
                    break
                (message,) = consumer.poll(timeout=1)  # poll returns the renewed record; acknowledge this message
                print(message.value().decode(), "renewed")
            else:
                failed = job.exception()
                if isinstance(failed, ValueError):
                    outcome = AcknowledgeType.REJECT  # the value is no number, so a retry cannot help
                else:
                    outcome = AcknowledgeType.RELEASE if failed else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, outcome)
                print(message.value().decode(), "delivery", message.delivery_count(), failed or "done")
                left -= outcome is not AcknowledgeType.RELEASE
    consumer.commit_sync()
