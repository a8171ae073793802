"""`sharegroups init` on a real store: a new store gets its cluster, once; an unusable store is refused, and the reason
is named."""

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from shard_runtime.config.process_settings import load_settings
from share_node.store.cluster_init import init, init_cluster
from tests.support.stores import Server

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


async def run(*words: str, environ: dict[str, str] | None = None) -> Result:
    """Run the command in its own thread, since it has its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, init, list(words), env=environ)


@pytest.mark.rule("CM-20")
async def test_a_new_store_gets_a_cluster_once(server: Server) -> None:
    url = f"redis://127.0.0.1:{server.port}"
    first = await run("--store", url)
    cluster_id = (await server.run(("GET", "{meta}:cluster")))[0].decode()
    assert (first.exit_code, first.stdout) == (0, f"Made cluster {cluster_id}.\n")
    second = await run(environ={"SHAREGROUPS_STORE_URL": url})
    assert (second.exit_code, second.stdout) == (0, f"The store holds cluster {cluster_id} already.\n")
    assert (await server.run(("GET", "{meta}:cluster")))[0].decode() == cluster_id


@pytest.mark.rule("CM-20")
async def test_two_at_once_agree_on_one_cluster(server: Server) -> None:
    settings = load_settings({"store.url": f"redis://127.0.0.1:{server.port}"})
    found = await asyncio.gather(*(init_cluster(settings) for _ in range(4)))
    assert len({cluster_id for cluster_id, _ in found}) == 1
    assert sum(made for _, made in found) == 1


@pytest.mark.rule("CM-130")
async def test_a_store_that_comes_later_is_waited_for_as_long_as_asked() -> None:
    """A job on Kubernetes passes --wait; a user at a terminal gets the error after ten seconds."""
    late = Server()
    url = f"redis://127.0.0.1:{late.port}"
    refused = await run("--store", url, "--wait", "1")
    assert refused.exit_code == 1
    assert "no connection within 1000 ms" in refused.stderr
    waiting = asyncio.create_task(run("--store", url, "--wait", "600"))
    try:
        await late.start()
        done = await waiting
        assert (done.exit_code, done.stdout[:13]) == (0, "Made cluster ")
    finally:
        late.stop()
        shutil.rmtree(late.folder, ignore_errors=True)


@pytest.mark.rule("CM-12", "CM-130")
async def test_a_new_cluster_is_made_only_with_all_replicas_of_its_store(server: Server) -> None:
    """A starting process, in contrast, proceeds with one of two, since a fail-over may have used up the other."""
    replica = Server("--replicaof", "127.0.0.1", str(server.port))
    await replica.start()
    url = f"redis://127.0.0.1:{server.port}"
    try:
        refused = await run("--store", url, "--wait", "1", environ={"SHAREGROUPS_STORE_REPLICAS": "2"})
        assert refused.exit_code == 1
        assert "1 replicas are connected, and nothing is confirmed without 2" in refused.stderr
        assert await server.run(("EXISTS", "{meta}:cluster")) == [0]
        made = await run("--store", url, environ={"SHAREGROUPS_STORE_REPLICAS": "1"})
        assert made.exit_code == 0, made.stderr
    finally:
        replica.stop()
        shutil.rmtree(replica.folder, ignore_errors=True)


async def test_a_store_that_would_lose_data_gets_none(server: Server) -> None:
    await server.run(("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"))
    refused = await run("--store", f"redis://127.0.0.1:{server.port}")
    assert refused.exit_code == 1
    assert "expected noeviction" in refused.stderr
    assert (await server.run(("EXISTS", "{meta}:cluster"))) == [0]
    allowed = await run("--store", f"redis://127.0.0.1:{server.port}", "--allow", "maxmemory-policy")
    assert allowed.exit_code == 0


async def test_an_undeclared_setting_is_refused() -> None:
    refused = await run(environ={"SHAREGROUPS_STORE_ULR": "redis://127.0.0.1:1"})
    assert refused.exit_code == 1
    assert "Did you mean 'SHAREGROUPS_STORE_URL'?" in refused.stderr
