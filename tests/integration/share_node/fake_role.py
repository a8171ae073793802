"""Stands in for a role process: records its ports, becomes ready unless a file `hold` exists, fails if a file `refuse`
exists, and ignores SIGTERM if a file `deaf` exists."""

import signal
import sys
import time
from pathlib import Path


def main() -> int:
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    folder = Path(given["data.dir"])
    with (folder / "ports").open("a") as ports:
        ports.write(given["listen.port"] + "\n")
    with (folder / "internal-ports").open("a") as ports:
        ports.write(given.get("internal.listen.port", "0") + "\n")
    with (folder / "metrics-ports").open("a") as ports:
        ports.write(given.get("metrics.port", "0") + "\n")
    if (folder / "refuse").exists():
        return 1
    if (folder / "deaf").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not (folder / "hold").exists():
        print(f"ready 127.0.0.1:{int(given['listen.port']) or 4242} 127.0.0.1:4343 127.0.0.1:4444", flush=True)
    time.sleep(30)
    return 0


if __name__ == "__main__":
    sys.exit(main())
