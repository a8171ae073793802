"""`sharegroups init`: a person declares a store to be new, once, and this makes the cluster in it (CM-20).

Role processes never do that by themselves: they take a store without a cluster for one that was wiped.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Final

import click

from kip932.store_settings import STORE_REPLICAS, STORE_URL
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import Settings, load_settings
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.startup_checks import ALLOWABLE, Show, check_store
from shard_runtime.record_log.store_url import masked
from share_node.node.process_store import opened_store
from share_node.node.serve import START_ERRORS, run
from share_node.store.store_option import password_option, url_with_password
from share_node.store.stored_copy import warn
from sharegroups.cli.output import print_stderr

#: How long the command waits for a store by default, s.
WAIT_S: Final = 10


async def init_cluster(
    settings: Settings, allow: frozenset[str] = frozenset(), wait_s: float = WAIT_S, show: Show | None = None
) -> tuple[str, bool]:
    """Make a cluster in the store unless there is one. Returns its id, and whether it was made now.

    Two processes that do this at the same time get the same id. `wait_s`: how long to wait for the store.
    Raises StoreCheckError, LogError; ValueError for an invalid URL.
    """
    store = opened_store(settings)
    replicas, in_sync = settings[STORE_REPLICAS], settings[kafka_configs.MIN_INSYNC_REPLICAS]
    await check_store(store, None, replicas, wait_ms=int(wait_s * 1000), allow=allow, show=show)
    cluster = StoreClusterStore(store, StoreSettings(replicas=replicas, min_insync_replicas=in_sync))
    try:
        found = await cluster.cluster_id()
        if found is not None:
            return found, False
        mine = secrets.token_urlsafe(16)
        made = await cluster.init_cluster(mine)
        return made, made == mine
    finally:
        await cluster.close()


@click.command()
@click.option("--store", help="The store: redis://, rediss://, redis+sentinel://…; default the setting store.url.")
@password_option
@click.option("--allow", multiple=True, type=click.Choice(ALLOWABLE), help="Accept what a check of the store found.")
@click.option("--wait", "wait_s", type=click.IntRange(1, 86_400), default=WAIT_S, show_default=True,
              help="Seconds to wait for a store that is not there yet.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="Settings file (TOML).")
def init(store: str | None, password_env: str, allow: tuple[str, ...], wait_s: int, config: Path | None) -> None:
    """Make the cluster in a new store, and end. A store that has one is left as it is.

    Exit status: 0 when the store holds a cluster now, 1 when it cannot be used.
    """
    status = 1
    if store is not None or password_env:
        store = url_with_password(store, password_env)

    async def body() -> None:
        nonlocal status
        try:
            flags = {} if store is None else {STORE_URL.name: store}
            settings = load_settings(flags, os.environ, config)
            found, made = await init_cluster(settings, frozenset(allow), wait_s, warn)
        except START_ERRORS as error:
            print_stderr(f"Error: {masked(str(error))}", keep="\n")
        else:
            click.echo(f"Made cluster {found}." if made else f"The store holds cluster {found} already.")
            status = 0

    run(body)
    sys.exit(status)
