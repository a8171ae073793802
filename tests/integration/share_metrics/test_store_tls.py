"""The pipeline on a store that serves TLS, requires client certificates and has users (CM-200)."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kip932.store_settings import StoreAccess
from kip932.store_tls import StoreTls
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.topology import open_store
from share_metrics.commands import metrics
from share_metrics.ingest.writing import Source
from share_metrics.reader import Kind, Reader, Store, StoreReplyError, StoreUnreachableError
from share_metrics.reader.streams import cluster_id
from share_metrics.spark.options import read_options
from share_node.certs import Authority
from tests.support.store_tls import SecuredStore
from tests.support.store_users import GuardedServer

USER = "sharegroups-ingest"


class Place:
    """The store, its endpoint, and how the pipeline reaches it."""

    def __init__(self, store: GuardedServer, made: SecuredStore, port: int, folder: Path) -> None:
        self.store, self.made, self.folder = store, made, folder
        self.url = f"rediss://127.0.0.1:{port}"
        self.password = folder / "password"
        self.password.write_text(f"{store.passwords[USER]}\n")
        self.access = StoreAccess(USER, self.password, made.tls(known=True))

    def file(self, **changed: str) -> str:
        """Write a settings file; return its path."""
        given = {"store.url": self.url, **self.access.texts(), "lease.ms": "3000"}
        given |= {f"store.{name.replace('_', '.')}": value for name, value in changed.items()}
        path = self.folder / "node.toml"
        path.write_text("".join(f'{name} = "{value}"\n' for name, value in given.items()))
        return str(path)

    def run(self, *words: str) -> Result:
        """Run a command of `sharegroups metrics`; it shows no password."""
        done = CliRunner().invoke(metrics, words)
        assert self.store.passwords[USER] not in done.output
        return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("store")
    store, made = asyncio.run(GuardedServer().start()), SecuredStore(folder)

    async def cluster() -> None:
        url = f"redis://sharegroups:{store.passwords['sharegroups']}@{store.address}"
        opened = StoreClusterStore(open_store(url), StoreSettings())
        await opened.init_cluster("the-cluster")
        await opened.close()

    asyncio.run(cluster())
    asyncio.run(store.admin(("SET", "sgs:config", "1"), ("SET", "gc:config", "1")))
    try:
        with made.in_front_of(store.server.port) as port:
            yield Place(store, made, port, folder)
    finally:
        store.stop()


@pytest.mark.rule("CM-200", "PM-5")
def test_a_reader_uses_the_files_and_reads_them_again_for_each_connection(place: Place, tmp_path: Path) -> None:
    password = tmp_path / "password"
    shutil.copy(place.password, password)
    access = StoreAccess(USER, password, place.access.tls)
    with Store(place.url, access=access) as store:
        assert cluster_id(store) == "the-cluster"
        password.write_text("not-the-password-4711")
        store.close()
        with pytest.raises(StoreReplyError, match=r"invalid username|WRONGPASS") as refused:
            cluster_id(store)
        assert f"the password is from store.password.location={password}" in str(refused.value)
        assert "4711" not in str(refused.value)
        password.unlink()
        with pytest.raises(StoreReplyError, match=re.escape(f"store.password.location={password}: it cannot be read")):
            cluster_id(store)
        shutil.copy(place.password, password)
        assert cluster_id(store) == "the-cluster"
    assert set(asyncio.run(place.store.denied())) == {f"{USER} auth AUTH toplevel"}


@pytest.mark.rule("CM-195", "CM-200")
def test_a_reader_says_what_a_failed_connection_may_mean(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = tmp_path / "others.crt"
    others.write_bytes(Authority.made().certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(place.made.store.authorities))  # where OpenSSL finds the system's
    own = place.access.tls
    for tls, said in (
        (StoreTls(others, own.certificate, own.key), f"not issued by an authority in store.ssl.ca.location={others}"),
        (StoreTls(own.authorities), "it requires a client certificate"),
    ):
        access = StoreAccess(USER, place.password, tls)
        with Store(place.url, access=access) as store, pytest.raises(StoreUnreachableError, match=re.escape(said)):
            cluster_id(store)
    with Store(place.url, access=StoreAccess(USER, place.password, StoreTls(None, own.certificate, own.key))) as store:
        assert cluster_id(store) == "the-cluster"


@pytest.mark.rule("CM-200", "CM-195")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ssl_ca_location": "nowhere.crt"}, "store.ssl.ca.location=nowhere.crt: it cannot be used (No such file"),
        ({"password_location": "nowhere"}, "store.password.location=nowhere: it cannot be read"),
        ({"url": "redis://h:1"}, "expected a URL with rediss://"),
        ({"url": "rediss://another@h:1"}, f"the store URL names the user another, but store.username is {USER}"),
        ({"ssl_ca_locaton": "x"}, "Unknown setting: store.ssl.ca.locaton"),
        ({"url": ""}, "--config FILE with store.url"),
    ],
)
def test_settings_that_cannot_be_used_end_a_command(place: Place, changed: dict[str, str], said: str) -> None:
    for words in (["ingest", "--data", str(place.folder / "d")], ["replay", "--group=g", "--topic=t", "--partition=0"]):
        done = place.run(*words, "--config", place.file(**changed))
        assert (done.exit_code, said in " ".join(done.output.split())) == (2, True), done.output


@pytest.mark.rule("CM-200", "CT-140")
def test_replay_reads_the_store_of_a_settings_file_and_of_the_environment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["replay", "--group=g", "--topic=t", "--partition=0"]
    done = place.run(*words, "--config", place.file())
    assert "Topic" in done.output or "topic" in done.output
    assert asyncio.run(place.store.denied()) == []
    monkeypatch.setenv("SHAREGROUPS_CONFIG", place.file())
    assert place.run(*words).output == done.output
    both = place.run("ingest", "--data", "d", "--up", "u", "--config", place.file())
    assert (both.exit_code, "not both" in both.output) == (2, True)


@pytest.mark.rule("CM-200", "PM-5")
def test_spark_reads_by_options_that_are_named_as_the_settings(place: Place, spark: SparkSession) -> None:
    options = {"url": place.url, "kind": "share_state", **place.access.texts()}
    rows = spark.read.format("redis_streams").options(**options).load()
    assert rows.collect() == []
    assert asyncio.run(place.store.denied()) == []


@pytest.mark.rule("CM-200", "PM-5")
def test_the_options_of_an_ingest_hold_paths_and_no_password(place: Place) -> None:
    options = Source(place.url, access=place.access).options(Kind.GROUP)
    given = read_options(options)
    assert (given.url, given.access) == (place.url, place.access)
    assert place.store.passwords[USER] not in repr(options) + repr(given)
    with given.store() as store:
        assert Reader(store, Kind.GROUP).streams()
