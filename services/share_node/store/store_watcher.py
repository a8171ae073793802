"""Keeps the embedded store from outliving its parent: starts it, and ends it when the parent's pipe closes.

Run as `python -I -S store_watcher.py GRACE_SECONDS COMMAND…`, with a pipe from the parent as standard input. A SIGKILL
of the parent closes the pipe, so no orphan remains. A signal on the parent's death would come when the starting
*thread* ends, and atexit does not run on SIGKILL. The first line on standard output is the process id of the store. It
imports only the standard library and never forks after the store has started.
"""

import os
import select
import signal
import subprocess
import sys


def main() -> int:
    """Run the store until it ends by itself or the parent has ended. Returns the store's exit status."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    # The store makes its files with 0666, its directory with 0755, and its socket with 0777 until it has narrowed it.
    os.umask(0o077)
    # A session of its own: Ctrl-C at the terminal must reach the roles, which then flush, and not the store.
    store = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=False)
    pidfd = os.pidfd_open(store.pid)
    sys.stdout.write(f"{store.pid}\n")
    sys.stdout.flush()
    while True:
        readable, _, _ = select.select([0, pidfd], [], [])
        if pidfd in readable:
            return store.wait()
        if not os.read(0, 4096):
            break
    store.send_signal(signal.SIGTERM)
    try:
        return store.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        store.kill()
        return store.wait()


if __name__ == "__main__":
    sys.exit(main())
