"""The role processes of `up --processes` and `up --leaders N`: started again after they die, ended with their parent.

A child's standard input is a pipe from the parent. When the parent ends, even by SIGKILL, the pipe closes and the child
leaves (`serve.WITH_PARENT`). A restarted child gets its former ports, because people, clients and other nodes know
those addresses. It takes other ports only when it cannot start there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from shard_runtime.config.process_settings import (
    INTERNAL_LISTEN_PORT,
    KAFKA_LISTEN_PORT,
    LISTEN_PORT,
    METRICS_PORT,
)
from share_node.node.serve import FAILED_WORD, NONE, READY_WORD, WITH_PARENT

log = structlog.get_logger(__name__)

PROGRAM: Final = ("share_node", "serve")
RESTARTS_MAX: Final = 20
RESTART_WINDOW_S: Final = 60.0
STOP_WAIT_S: Final = 20.0


class RoleProcess:
    """One role in a process of its own. `environment` is added to this process's; process lists do not show it.

    `name` distinguishes it from others of its role in messages; by default it is the role. `program`: the module to run
    as `python -m`, with the role and its arguments.
    """

    def __init__(
        self,
        role: str,
        arguments: Sequence[str],
        on_failed: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
        *,
        name: str = "",
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.name = name or role
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        #: The `host:port` of its metrics, once `address` is set; empty if it serves none.
        self.metrics_address = ""
        #: The `host:port` at which it serves Kafka's clients, likewise.
        self.kafka_address = ""
        self._command = [sys.executable, "-m", *program, role, WITH_PARENT, *arguments]
        self._on_failed = on_failed
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = False
        self._logs = False

    @property
    def pid(self) -> int:
        """The process id; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start the process; `address` is set once it is ready."""
        await self._launch(self._command)
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    def let_log(self) -> None:
        """Have the process write what it has logged, and write everything at once from now on; also after a restart."""
        self._logs = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"\n")

    async def stop(self) -> None:
        """End the process in good order; kill it after a bounded wait."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_WAIT_S)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self.address.cancel()

    async def _launch(self, command: Sequence[str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *command, env=self._environment,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        if self._logs:
            self.let_log()

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        restarts: deque[float] = deque(maxlen=RESTARTS_MAX)
        ports: list[str] = []
        while True:
            process = self._process
            assert process is not None
            assert process.stdout is not None
            ready, reason = False, ""
            async for line in process.stdout:
                word, _, rest = line.decode().strip().partition(" ")
                if word == READY_WORD:
                    addresses = ["" if address == NONE else address for address in rest.split()]
                    ready, ports = True, [address.rpartition(":")[2] for address in addresses]
                    self.metrics_address, self.kafka_address = (*addresses[2:], "", "")[:2]
                    if not self.address.done():
                        self.address.set_result(addresses[0])
                elif word == FAILED_WORD:
                    reason = json.loads(rest)
            status = await process.wait()
            if self._stopping:
                return
            if len(restarts) == RESTARTS_MAX and loop.time() - restarts[0] < RESTART_WINDOW_S:
                why = f", at last because: {reason}" if reason else ""
                self._on_failed(f"{self.name} ended {RESTARTS_MAX} times within {RESTART_WINDOW_S:.0f} s{why}")
                return
            if not self.address.done():
                default_reason = f"it ended with status {status} before it was ready; see its last output above"
                self._on_failed(f"{self.name}: {reason or default_reason}")
                return
            restarts.append(loop.time())
            log.warning(
                "role_process_ended", role=self.name, status=status, reason=reason, effect="it is started again"
            )
            if status >= 0 and not ready:
                ports = []  # it exited on its own, perhaps because another process has one of these ports
            names = (LISTEN_PORT.name, INTERNAL_LISTEN_PORT.name, METRICS_PORT.name, KAFKA_LISTEN_PORT.name)
            again = [f"{name}={port}" for name, port in zip(names, ports, strict=False) if port]
            await self._launch([*self._command, *again])  # later arguments win
