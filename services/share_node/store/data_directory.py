"""A data directory: its owner's lock, the incarnations that a node name has had, and the store's files.

A process that has the exclusive lock knows that every earlier incarnation of its name has ended. So after a restart it
can take its shards back at once (CM-12 `dead`, CM-73). The lock is `flock`: it ends with the process and never has to
be cleaned up. A data directory on NFS is not supported.

A directory is identified by its device and inode, so that a copy of it, made while the original is in use, is not
mistaken for the original: it takes no shards of the original's nodes, and leaves the original's socket alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Final, NamedTuple

INCARNATIONS_KEPT: Final = 64
#: How many characters are shown of the command of a process that holds a lock.
_COMMAND_SHOWN: Final = 80


class DataDirectoryError(Exception):
    """The data directory cannot be used; the message says why."""


class Holder(NamedTuple):
    """A process that has a file open: its id and its command."""

    pid: int
    command: tuple[str, ...]

    def __str__(self) -> str:
        words = " ".join(self.command)
        return f"process {self.pid} ({words[:_COMMAND_SHOWN]}{'…' if len(words) > _COMMAND_SHOWN else ''})"


def holders(path: Path) -> list[Holder]:
    """Return the processes of this user, except this one, that have this file open; none where there is no /proc."""
    found = []
    with contextlib.suppress(OSError):
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid() and _has_open(process, path):
                with contextlib.suppress(OSError):  # it has just ended
                    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    found.append(Holder(int(process.name), tuple(word for word in words if word)))
    return sorted(found)


def _has_open(process: Path, path: Path) -> bool:
    try:
        wanted = path.stat()
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    except OSError:  # another user's process, or one that has just ended
        pass
    return False


class FileLock:
    """An exclusive lock on a file, held until `release` or the end of every process that inherited it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def fd(self) -> int:
        """The locked descriptor; pass it to a child that must hold the lock too."""
        if self._fd is None:
            raise DataDirectoryError(f"{self.path} is not locked")
        return self._fd

    def acquire(self, owner: str, wait_s: float = 0.0) -> None:
        """Take the lock, waiting up to `wait_s` seconds. Raises DataDirectoryError, which names the present owner."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    noted = os.pread(fd, 200, 0).decode(errors="replace").strip() or "another process"
                    os.close(fd)
                    live = ", ".join(map(str, holders(self.path)))
                    raise DataDirectoryError(
                        f"data directory {self.path.parent} is in use by {noted} (lock {self.path.name}"
                        f"{f', held by {live}' if live else ''}). "
                        "Stop that process first, or give this one a directory of its own with --data DIR."
                    ) from None
                time.sleep(0.02)
        os.ftruncate(fd, 0)
        os.pwrite(fd, owner.encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Give the lock up; does nothing when it is not held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class NodeIdentity:
    """One process under a node name: the lock it holds, its incarnation, and the earlier ones known to have ended."""

    def __init__(self, name: str, incarnation: int, dead: frozenset[int], lock: FileLock | None) -> None:
        self.name = name
        self.incarnation = incarnation
        self.dead = dead
        self._lock = lock

    def release(self) -> None:
        """Let another process take the name."""
        if self._lock is not None:
            self._lock.release()


def new_incarnation() -> int:
    """A random positive 63-bit number that identifies one process (CM-1)."""
    return secrets.randbits(63) | 1


def default_data() -> Path:
    """Return where `up` keeps its data by default."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "sharegroups"


class DataDirectory:
    """The directory in which one `up` (or one service) keeps its files."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.path / "nodes").mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise DataDirectoryError(
                f"cannot create data directory {self.path}: {error.strerror}. Choose another with --data DIR."
            ) from error
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise DataDirectoryError(f"data directory {self.path} is not writable. Choose another with --data DIR.")

    @property
    def mark(self) -> str:
        """The text that distinguishes this directory from every copy of it. It changes when the directory moves to
        another disk."""
        found = self.path.stat()
        return f"{found.st_dev}:{found.st_ino}"

    @property
    def store(self) -> Path:
        """The directory of the embedded store's append-only file."""
        return self.path / "store"

    def lock(self, name: str) -> FileLock:
        """The lock file `<name>.lock` of this directory, not yet taken."""
        return FileLock(self.path / f"{name}.lock")

    def identity(self, name: str, wait_s: float = 0.0) -> NodeIdentity:
        """Lock a node name, choose a new incarnation, and list the earlier ones (CM-12 `dead`).

        The list is written before the process claims any shard, so that a later start knows this incarnation, too. The
        list of a copied directory is not used: the lock says nothing about the original's processes, which may be alive
        and serve the same store.
        """
        lock = FileLock(self.path / "nodes" / f"{name}.lock")
        lock.acquire(f"process {os.getpid()}, node {name}", wait_s)
        ledger = self.path / "nodes" / f"{name}.json"
        known = _read_incarnations(ledger, self.mark)
        incarnation = new_incarnation()
        kept = [*known, incarnation][-INCARNATIONS_KEPT:]
        try:
            _write_durably(ledger, json.dumps({"directory": self.mark, "incarnations": kept}))
        except OSError as error:
            lock.release()
            raise _unwritable(ledger, error) from error
        return NodeIdentity(name, incarnation, frozenset(known), lock)

    def remembered(self, name: str) -> str | None:
        """The small text stored under `name`; None when there is none."""
        path = self.path / name
        return path.read_text().strip() if path.exists() else None

    def remember(self, name: str, text: str) -> None:
        """Store a small text under `name`, durably. Raises DataDirectoryError."""
        try:
            _write_durably(self.path / name, text)
        except OSError as error:
            raise _unwritable(self.path / name, error) from error


def _unwritable(path: Path, error: OSError) -> DataDirectoryError:
    free = ""
    with contextlib.suppress(OSError):
        free = f"; {shutil.disk_usage(path.parent).free} bytes are free on its file system"
    return DataDirectoryError(
        f"cannot write {path}: {error.strerror}{free}. Make room there, or give another directory by --data (data.dir)"
    )


def _read_incarnations(ledger: Path, mark: str) -> list[int]:
    if not ledger.exists():
        return []
    try:
        noted = json.loads(ledger.read_text())
        return [int(value) for value in noted["incarnations"]] if noted["directory"] == mark else []
    except (ValueError, KeyError, TypeError):
        # A torn list, or one of an earlier version, costs time, not safety: the leases of incarnations not listed run
        # to their end.
        return []


def _write_durably(path: Path, text: str) -> None:
    # A unique name: role processes of one machine share the directory and may write the same file at the same time.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
