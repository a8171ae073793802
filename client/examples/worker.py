"""A worker, with a job to try it:

sharegroups topics create mails
echo '{"to": "ann@example.org"}' | sharegroups produce mails
python worker.py                        # or: sharegroups worker worker:worker --concurrency 8
"""

import json

from sharegroups import Reject, Retry, Worker

worker = Worker(bootstrap_servers="127.0.0.1:7932", group_id="mail")


@worker.job("mails", value=json.loads, retry=Retry(backoff=1, maximum=60))
def send_mail(mail: dict[str, str]) -> None:
    """Send one mail; how this ends decides what becomes of the record."""
    if "to" not in mail:
        raise Reject("it has no address")  # given up; any other exception is tried again, with back-off
    print("mail to", mail["to"], flush=True)  # a return accepts the record: it never comes back


if __name__ == "__main__":
    worker.run()
