"""A data directory: its owner's lock, the incarnations that a node name has had, and the store's files.

A process that has the exclusive lock knows that every earlier incarnation of its name has ended. So after a restart it
can take its shards back at once (CM-12 `dead`, CM-73). The lock is `flock`: it ends with the process and never has to
be cleaned up. A data directory on NFS is not supported.

Only its owner can read it: directories have the mode 0700 and files 0600, whatever the umask (CM-185).

A directory is identified by its device and inode, so that a copy of it, made while the original is in use, is not
mistaken for the original: it takes no shards of the original's nodes, and leaves the original's socket alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

log = structlog.get_logger(__name__)

#: The modes of everything in a data directory (CM-185).
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077
#: Names that this suite gives to entries of a data directory. A directory that holds others may be a home directory.
_OWN_ENTRY: Final = re.compile(r"nodes|store|cluster-id|store\..+|[\w-]+\.lock|.+\.new")
INCARNATIONS_KEPT: Final = 64
#: Directories whose rights this process has reported.
_reported: Final[set[Path]] = set()
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
        """Take the lock, waiting up to `wait_s` seconds. Raises DataDirectoryError, which names the current owner."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, FILE_MODE)
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
        with contextlib.suppress(PermissionError):  # another user made it, and has let this one write it
            os.fchmod(fd, FILE_MODE)
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


def make_private(path: Path) -> None:
    """Make a directory, and those missing above it, for this user alone, whatever the umask. One that exists keeps its
    rights. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process has just made it
            each.mkdir(mode=DIRECTORY_MODE)
            each.chmod(DIRECTORY_MODE)  # a umask takes rights away, its owner's too
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def write_private(path: Path, text: str) -> None:
    """Make a file with this text for this user alone, whatever the umask. Raises OSError, also when it exists."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        os.fchmod(fd, FILE_MODE)
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


class DataDirectory:
    """The directory in which one `up` (or one service) keeps its files."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        try:
            make_private(self.path)
            make_private(self.path / "nodes")
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

    def keep_private(self, *, quiet: bool = False) -> None:
        """Take the rights of all but this user from the directory and its entries. That others could access it before
        is logged, once per process and unless `quiet` (CM-185).

        An earlier version left some files readable by every user, if the umask allowed it. A directory that belongs to
        another user, or that holds more than this suite's entries, keeps its own rights, since it may be a mounted
        volume or a home directory; what this suite made in it is narrowed.
        """
        found = self.path.stat()
        foreign = _why_foreign(self.path, found)
        narrowed = sum([_narrow(entry) for entry in self._entries()])
        if not stat.S_IMODE(found.st_mode) & _OTHERS:
            return
        if not foreign:
            self.path.chmod(DIRECTORY_MODE)
        if quiet or self.path in _reported:
            return
        _reported.add(self.path)
        fields = {"data": str(self.path), "mode": f"{stat.S_IMODE(found.st_mode):04o}", "entries_narrowed": narrowed}
        if foreign:
            effect = "it keeps its mode; the entries made in it are this user's alone"
            log.info("data_directory_shared", cause=foreign, effect=effect, **fields)
        else:
            log.warning(
                "data_directory_narrowed", cause="other users had access to it", effect="it is 0700 now", **fields
            )

    def _entries(self) -> Iterator[Path]:
        """Yield what this suite and its store made in the directory, the outermost first."""
        for entry in self.path.iterdir():
            if _OWN_ENTRY.fullmatch(entry.name):
                yield entry
        for name in ("nodes", "store"):
            for folder, folders, files in os.walk(self.path / name):  # it follows no link
                yield from (Path(folder, each) for each in (*folders, *files))

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


def _why_foreign(path: Path, found: os.stat_result) -> str:
    """Return why the rights of a data directory are not this process's to change; "" when they are."""
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}, and this process runs as {os.geteuid()}"
    other = next((entry.name for entry in path.iterdir() if not _OWN_ENTRY.fullmatch(entry.name)), None)
    return f"it holds something else too: {other}" if other is not None else ""


def _narrow(entry: Path) -> bool:
    """Take all rights on a file or directory of this user from others. Returns whether they had any."""
    with contextlib.suppress(FileNotFoundError):  # a lock or a temporary file of another process
        found = entry.lstat()
        plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
        if plain and found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            entry.chmod(DIRECTORY_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE)
            return True
    return False


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
    write_private(temporary, text)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
