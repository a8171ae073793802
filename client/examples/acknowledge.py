"""Acknowledge each record individually, according to the outcome of its work: `python acknowledge.py [host:port]`."""

import sys

from sharegroups import AcknowledgeType, Admin, Message, Producer, ShareConsumer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7932"


def handle(message: Message) -> None:
    """Process one record. Amount 14 fails on its first delivery; an amount that is not a number always fails."""
    amount = int(message.value())
    if amount == 14 and message.delivery_count() == 1:
        raise ConnectionError("the bank does not answer")


with Admin(bootstrap_servers=bootstrap) as admin:
    admin.create_topics(["payments"])  # an existing topic stays as it is

with Producer(bootstrap_servers=bootstrap) as producer:
    for text in ("12", "13", "fourteen", "14"):
        producer.produce("payments", text)

with ShareConsumer(bootstrap_servers=bootstrap, group_id="bank", share_acknowledgement_mode="explicit") as consumer:
    consumer.subscribe(["payments"])
    finished = 0
    while finished < 4:
        for message in consumer.poll(timeout=1):
            reason = ""
            try:
                handle(message)
                outcome = AcknowledgeType.ACCEPT
            except ConnectionError as error:
                outcome, reason = AcknowledgeType.RELEASE, repr(error)  # the group gets it again
            except ValueError as error:
                outcome, reason = AcknowledgeType.REJECT, repr(error)  # it is not delivered again
            consumer.acknowledge(message, outcome, reason=reason)  # `groups explain` and `dlq list` show the reason
            print(message.value().decode(), "delivery", message.delivery_count(), outcome.name)
            finished += outcome is not AcknowledgeType.RELEASE
    consumer.commit_sync()  # send the acknowledgements now; otherwise the next poll sends them
