"""Runs the README's consumer unchanged, except that the `print` of a record does a job. Usage: `BOOTSTRAP TOPIC GROUP`.

A record's value gives the seconds that its job takes. A fourth argument omits the settings for jobs. The program
reports what it did as one JSON line per event, and ends when its standard input closes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"


def loop(bootstrap: str, topic: str, group: str, plain: bool) -> str:
    """Return the source of the README's consumer, with these names inserted."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    block = next(block for block in blocks if "with ShareConsumer(" in block)
    source = "from sharegroups import ShareConsumer\n" + block[block.index("def acknowledged(") :]
    changes = {'"127.0.0.1:7932"': repr(bootstrap), '"workers"': repr(group), '["orders"]': repr([topic])}
    changes["while seen < 10:"] = "while True:"
    if plain:
        changes[", **jobs) as"] = ") as"
    for written, meant in changes.items():
        assert source.count(written) == 1, f"the README's consumer has {written!r} {source.count(written)} times"
        source = source.replace(written, meant)
    return source


def do(*words: object) -> None:
    """Stand in for `print`: do the job, or report a refused acknowledgement."""
    if len(words) == 1:
        reported: dict[str, object] = {"refused": str(words[0])}
    else:
        offset, seconds, _, delivery = words
        time.sleep(float(str(seconds)))
        reported = {"offset": offset, "delivery": delivery}
    sys.stdout.write(json.dumps(reported) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """Make the loop leave its `with` block once standard input is closed."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    given = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    exec(loop(given[0], given[1], given[2], plain=len(given) > 3), {"print": do})
