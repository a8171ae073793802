"""A store with users behind Sentinels that have users of their own or none, with and without TLS: every program reaches
both, and says which of them refuses it (CM-230)."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from kip932.store_settings import SentinelAccess, StoreAccess, read_store
from shard_runtime.record_log.redis.connection import ConnectionLostError, SentinelAccessError
from shard_runtime.record_log.redis.topology import open_store
from share_metrics.reader import Store, StoreUnreachableError
from share_metrics.reader.streams import cluster_id
from share_node import commands
from share_node.certs import Authority
from tests.support.cluster_nodes import until_true
from tests.support.sentinels import ASKED, SERVICE, WatchedStore
from tests.support.store_tls import SecuredStore
from tests.support.store_users import OF_SENTINELS, GuardedServer, password_of


class Place:
    """A running store, and the settings by which a user of it and of its Sentinel reaches both."""

    def __init__(self, store: WatchedStore, folder: Path, tls: dict[str, str]) -> None:
        self.store, self.folder = store, folder
        self.sentinel = dict[str, str]()
        (folder / "sentinel.password").write_text(ASKED)
        if store.login:
            self.sentinel["store.sentinel.password.location"] = str(folder / "sentinel.password")
        if store.login == "user":
            self.sentinel["store.sentinel.username"] = OF_SENTINELS
        self.sentinel |= tls

    def file(self, user: str, changed: dict[str, str]) -> str:
        """Write a user's settings; return the path of their file."""
        password = self.folder / f"{user}.password"
        password.write_text(f"{self.store.servers[0].passwords[user]}\n")
        given = {"store.url": self.store.url, "store.username": user, "store.password.location": str(password)}
        path = self.folder / f"{user}.toml"
        lines = (f'{name} = "{value}"\n' for name, value in {**given, **self.sentinel, **changed}.items() if value)
        path.write_text("".join(lines))
        return str(path)

    def run(self, user: str, words: list[str], **changed: str) -> Result:
        """Run a command in this process as a user; it shows no password."""
        changed = {f"store.{name.replace('_', '.')}": value for name, value in changed.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the end of a process closes what is left
            done = CliRunner().invoke(commands.main, [*words, "--config", self.file(user, changed)])
            gc.collect()
        for password in (ASKED, *self.store.servers[0].passwords.values()):
            assert password not in done.output
        return done

    def reader(self, **changed: str) -> Store:
        """Return the pipeline's reader; the caller must close it."""
        given = {f"store.{name.replace('_', '.')}": value for name, value in changed.items()}
        url, access = read_store("", {}, Path(self.file("sharegroups-ingest", given)))
        return Store(url, access=access, replicas=True)


@contextmanager
def placed(folder: Path, login: str = "", tls: str = "") -> Iterator[Place]:
    """Yield a running place. `tls`: with one authority, with one for each of store and Sentinel, or for the store
    alone."""
    settings: dict[str, str] = {}
    made = others = None
    if tls:
        (folder / "s").mkdir()
        made = others = SecuredStore(folder / "s")
        settings = files("store.ssl", made)
    if tls == "each its own":
        (folder / "o").mkdir()
        others = SecuredStore(folder / "o")
        settings |= files("store.sentinel.ssl", others)
    if tls == "the store alone":
        settings["store.sentinel.ssl.enable"], others = "false", None
    store = WatchedStore(login, made, others)
    try:
        asyncio.run(store.start())
        yield Place(store, folder, settings)
    finally:
        store.stop()


def files(prefix: str, made: SecuredStore) -> dict[str, str]:
    """Return the settings of a client's files."""
    found = made.client
    return {
        f"{prefix}.ca.location": str(found.authorities),
        f"{prefix}.certificate.location": str(found.certificate),
        f"{prefix}.key.location": str(found.key),
    }


@pytest.mark.rule("CM-230", "CM-200", "CM-184", "PM-5")
@pytest.mark.parametrize(
    ("login", "tls"),
    [("", ""), ("password", ""), ("user", ""), ("user", "one"), ("user", "each its own"), ("", "the store alone")],
)
def test_every_program_reaches_a_store_behind_sentinels(tmp_path: Path, login: str, tls: str) -> None:
    with placed(tmp_path, login, tls) as place:
        for user, words in (
            ("sharegroups-init", ["init"]),
            ("sharegroups-backup", ["backup", str(tmp_path / "saved"), "--quiet"]),
            ("sharegroups-state", ["state", "check"]),
        ):
            done = place.run(user, words)
            assert done.exit_code == 0, done.output
        with place.reader() as reader:
            found = cluster_id(reader.primary)
            assert found
            assert cluster_id(reader) == found
        assert asyncio.run(place.store.denied()) == []


@pytest.mark.rule("CM-230")
@pytest.mark.parametrize(
    ("login", "changed", "said", "to_the_reader"),
    [
        (
            "password",
            {"sentinel_password_location": ""},
            "wants a password and was given none",
            "set store.sentinel.pa",
        ),
        ("user", {"sentinel_username": "other"}, "refuses the user or the password", "its user is other, and the pass"),
        ("", {"sentinel_username": "other"}, "refuses the user or the password", "its user is other"),
    ],
)
def test_a_sentinel_that_refuses_is_named_with_what_to_set(
    tmp_path: Path, login: str, changed: dict[str, str], said: str, to_the_reader: str
) -> None:
    with placed(tmp_path, login) as place:
        sentinel = f"Sentinel 127.0.0.1:{place.store.sentinel.port}"
        done = place.run("sharegroups-init", ["init", "--wait", "2"], **changed)
        assert (done.exit_code, f"{sentinel} {said}" in done.output) == (1, True), done.output
        assert "set store.sentinel.password.location (a file)" in done.output
        with place.reader(**changed) as reader, pytest.raises(StoreUnreachableError) as refused:
            cluster_id(reader)
        assert sentinel in str(refused.value)
        assert to_the_reader in str(refused.value)


@pytest.mark.rule("CM-230")
def test_a_right_that_the_user_of_sentinels_lacks_is_named(tmp_path: Path) -> None:
    with placed(tmp_path, "user") as place:
        asyncio.run(place.store.ask(("ACL", "SETUSER", OF_SENTINELS, "-sentinel|get-master-addr-by-name")))
        done = place.run("sharegroups-init", ["init", "--wait", "2"])
        assert (done.exit_code, "'sentinel|get-master-addr-by-name' command" in done.output) == (1, True), done.output
        assert "the right +sentinel|get-master-addr-by-name" in done.output
        with place.reader() as reader, pytest.raises(StoreUnreachableError, match=r"needs the right \+sentinel\|get-"):
            cluster_id(reader)
        assert {f"{OF_SENTINELS} command sentinel|get-master-addr-by-name toplevel"} == set(
            asyncio.run(place.store.denied())
        )


@pytest.mark.rule("CM-230", "CM-231")
def test_a_master_that_cannot_be_reached_is_named_with_the_sentinel_that_names_it(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        wrong = (("SENTINEL", "REMOVE", SERVICE), ("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", 1, 1))
        asyncio.run(place.store.ask(*wrong))
        sentinel = f"Sentinel 127.0.0.1:{place.store.sentinel.port}"
        done = place.run("sharegroups-init", ["init", "--wait", "2"])
        said = f"the master of main that {sentinel} names: cannot connect to 127.0.0.1:1:"
        assert (done.exit_code, said in done.output) == (1, True), done.output
        assert "replica-announce-ip" in done.output
        with place.reader() as reader, pytest.raises(StoreUnreachableError) as refused:
            cluster_id(reader.primary)
        assert f"the store at 127.0.0.1:1, which {sentinel} names for main, does not answer" in str(refused.value)


@pytest.mark.rule("CM-230", "CM-231")
def test_another_service_and_a_server_that_is_no_sentinel_are_named(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        done = place.run("sharegroups-init", ["init", "--wait", "1"], url=place.store.url.replace("main", "mine"))
        assert (done.exit_code, "knows no service mine. Expected Sentinels" in done.output) == (1, True), done.output
        asyncio.run(place.store.servers[0].admin(("ACL", "SETUSER", "default", "on", "nopass", "+@all")))
        server = f"127.0.0.1:{place.store.servers[0].server.port}"
        done = place.run("sharegroups-init", ["init", "--wait", "1"], url=f"redis+sentinel://{server}/main")
        assert (done.exit_code, f"{server} is no Sentinel" in done.output) == (1, True), done.output


@pytest.mark.rule("CM-230", "CM-231")
def test_a_certificate_that_sentinels_do_not_accept_is_named_by_their_settings(tmp_path: Path) -> None:
    with placed(tmp_path, "user", "each its own") as place:
        (tmp_path / "others.crt").write_bytes(Authority.made().certificate)
        changed = {"sentinel_ssl_ca_location": str(tmp_path / "others.crt")}
        said = f"an authority in store.sentinel.ssl.ca.location={tmp_path / 'others.crt'}: name there the PEM file"
        done = place.run("sharegroups-init", ["init", "--wait", "1"], **changed)
        assert (done.exit_code, said in done.output, "Start one" in done.output) == (1, True, False), done.output
        with place.reader(**changed) as reader, pytest.raises(StoreUnreachableError, match="Sentinel") as refused:
            cluster_id(reader)
        assert said in str(refused.value)


@pytest.mark.asyncio
@pytest.mark.rule("CM-230")
async def test_a_changed_password_of_sentinels_needs_no_restart(tmp_path: Path) -> None:
    store = await WatchedStore("user").start()
    file = tmp_path / "password"
    file.write_text(ASKED)
    access = StoreAccess("sharegroups", tmp_path / "stores", sentinel=SentinelAccess(OF_SENTINELS, file))
    (tmp_path / "stores").write_text(password_of("sharegroups"))
    try:
        opened = open_store(store.url, access=access)
        await opened.refresh()
        file.write_text("the-new-one-4712")
        with capture_logs() as lines:
            await opened.refresh()  # too early: with the last password that worked
            await opened.refresh()
        assert [(line["event"], "the Sentinels refuse the password" in line["cause"]) for line in lines] == [
            ("store_password_refused", True)
        ]
        await store.ask(("ACL", "SETUSER", OF_SENTINELS, ">the-new-one-4712", f"<{ASKED}"))
        await opened.refresh()
        file.write_text("neither-of-both-4713")
        await store.ask(("ACL", "SETUSER", OF_SENTINELS, "<the-new-one-4712", ">another"))
        with pytest.raises(SentinelAccessError, match=f"store.sentinel.password.location={file}") as refused:
            await opened.refresh()
        assert "471" not in str(refused.value)
    finally:
        store.stop()


@pytest.mark.asyncio
@pytest.mark.rule("CM-230")
async def test_the_url_says_who_asks_and_the_stores_user_is_not_sent_to_sentinels(tmp_path: Path) -> None:
    store = await WatchedStore("user").start()
    login = f"sentinel_username={OF_SENTINELS}&sentinel_password={ASKED}"
    known = store.url.replace("//", f"//sharegroups:{password_of('sharegroups')}@")
    try:
        connection = await open_store(f"{known}?{login}").connect("")
        assert await connection.run([("PING",)], 5_000) == [b"PONG"]
        await connection.close()
        with pytest.raises(SentinelAccessError, match="was given none"):
            await open_store(known).refresh()
        assert await store.denied() == [], "an attempt to log in would be in its log"
    finally:
        store.stop()


@pytest.mark.asyncio
@pytest.mark.rule("CM-232")
async def test_a_replica_follows_and_a_sentinel_watches_with_the_rights_that_the_page_lists() -> None:
    store = await WatchedStore("user").start()
    master, replica = store.servers
    try:
        assert await until_ok(store, "SENTINEL", "CKQUORUM", SERVICE)
        port = str(store.ports[master.server]).encode()
        assert await followed(replica, port)
        assert await store.denied() == []
    finally:
        store.stop()


@pytest.mark.asyncio
@pytest.mark.rule("CM-184", "CM-232")
async def test_a_fail_over_needs_no_other_rights_than_the_page_lists() -> None:
    store = await WatchedStore("user").start()
    first, second = store.servers
    try:
        for old, new in ((first, second), (second, first)):
            assert await until_ok(store, "SENTINEL", "FAILOVER", SERVICE)
            port = str(store.ports[new.server]).encode()
            await until_true(partial(named, store, port), "the replica is the master")
            await until_true(partial(followed, old, port), "the old master is its replica")
        assert await store.denied() == []
    finally:
        store.stop()


async def until_ok(store: WatchedStore, *asked: str) -> bool:
    """Ask a Sentinel until it does not refuse, bounded: it takes a moment to find a replica that is fit."""
    for _ in range(1_000):
        (reply,) = await store.ask(asked)
        if isinstance(reply, bytes) and reply.startswith(b"OK"):
            return True
        await asyncio.sleep(0.02)
    return False


async def named(store: WatchedStore, port: bytes) -> bool:
    (found,) = await store.ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE))
    return bool(found[1] == port)


async def followed(guarded: GuardedServer, port: bytes) -> bool:
    try:
        (info,) = await guarded.admin(("INFO", "replication"))
    except ConnectionLostError:  # a master that is demoted closes its clients' connections
        return False
    text = info if isinstance(info, bytes) else info.encode()
    return b"role:slave" in text and b"master_port:" + port in text and b"master_link_status:up" in text
