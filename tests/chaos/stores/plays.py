"""The faults of a store under load: one function per fault, for every shape of store that it fits."""

from __future__ import annotations

from typing import Final

from tests.chaos.deployment import GROUP_COORDINATOR, PARTITION_LEADER, SHARE_COORDINATOR
from tests.chaos.history import now_ms
from tests.chaos.stores.cluster import ClusterStore
from tests.chaos.stores.node import ValkeyNode
from tests.chaos.stores.sentinel import SentinelStore
from tests.chaos.stores.trial import LEASE_MS, StoreTrial

#: The age of writes that `appendfsync everysec` may not have written when a slow disk delays it.
EVERYSEC_MS: Final = 2_000


def store_killed(trial: StoreTrial) -> None:
    """Kill a single server repeatedly, and start it on the same data."""
    (node,) = trial.store.nodes
    for _ in range(3):
        trial.pass_time(0.6, 1.8)
        trial.kill(node.name)
        if not trial.store.fsync_always:
            trial.allow_loss(now_ms() - EVERYSEC_MS)
        trial.pass_time(0.1, 1.0)
        trial.start(node.name)
        trial.load.wait_working(["consumer0", "consumer1"])  # without `always` owners first wait for a lease
    trial.pass_time(0.5, 1.0)


def store_restarted(trial: StoreTrial) -> None:
    """Stop every server in turn in good order, and start it on the same data.

    A replica may take over from a master meanwhile. Writes that the old master then confirms, alone or with a replica
    that still follows it, are lost once these nodes learn of the take-over.
    """
    for node in trial.store.nodes:
        trial.pass_time(0.3, 1.0)
        led, since_ms = node.is_master, now_ms()
        trial.stop(node.name)
        trial.start(node.name)
        trial.deployment.heal()
        if led and not trial.every_copy_confirms:
            trial.allow_loss(since_ms)
    trial.pass_time(0.5, 1.0)


def store_lost_and_back(trial: StoreTrial) -> None:
    """Kill every server of the store at the same moment, and start them again."""
    trial.pass_time(0.5, 1.5)
    trial.kill(*(node.name for node in trial.store.nodes))
    trial.allow_loss(now_ms() - EVERYSEC_MS, now_ms() + LEASE_MS)  # a replica may lead for a moment
    trial.pass_time(0.5, 1.0)
    for node in trial.store.nodes:
        trial.start(node.name)
    trial.deployment.heal()
    trial.pass_time(1.0, 2.0)


def master_killed(trial: StoreTrial) -> None:
    """Kill a master; a replica takes over, and the old one comes back as a replica.

    With `min.insync.replicas` 1, writes that had not reached the replicas are lost: here the last milliseconds.
    """
    for _ in range(2):
        key = trial.topic_key()
        master = trial.store.master_of(key)
        trial.pass_time(0.5, 1.5)
        trial.kill(master.name)
        _may_lose(trial, now_ms())
        trial.store.promoted(master, key)
        trial.pass_time(1.0, 2.0)
        trial.start(master.name)
        trial.deployment.heal()
    trial.pass_time(0.5, 1.0)


def lagging_replicas(trial: StoreTrial) -> None:
    """Let all replicas of a master lag, then kill it; one of them takes over without the tail (SR-22)."""
    key = trial.topic_key()
    master = trial.store.master_of(key)
    trial.pass_time(0.5, 1.0)
    since_ms = trial.note("cut off from their master", *trial.store.replicas_of(master))
    for replica in trial.store.replicas_of(master):
        trial.store.lag(replica)
    trial.pass_time(1.0, 2.0)
    tail = master.offset
    trial.kill(master.name)
    _may_lose(trial, since_ms)
    promoted = trial.store.promoted(master, key)
    assert took_over_at(promoted) <= tail, "the replica had everything: nothing was lost, so nothing is shown"
    trial.pass_time(1.0, 2.0)
    trial.start(master.name)
    trial.deployment.heal()
    trial.pass_time(0.5, 1.0)


def one_lagging_replica(trial: StoreTrial) -> None:
    """Let one of two replicas lag, then kill the master; the other one takes over."""
    key = trial.topic_key()
    master = trial.store.master_of(key)
    behind, ahead = trial.store.replicas_of(master)
    trial.note("cut off from its master", behind)
    trial.store.lag(behind)
    trial.pass_time(1.0, 2.0)
    trial.kill(master.name)
    assert trial.store.promoted(master, key) is ahead
    trial.pass_time(1.0, 2.0)
    trial.start(master.name)
    trial.deployment.heal()
    trial.pass_time(0.5, 1.0)


def master_cut_off(trial: StoreTrial) -> None:
    """Cut a master off from all other nodes but not its clients; a replica takes over; the old one learns of it late.

    Until their leases expire, owners that still reach the old master confirm what only it has, if one copy is enough.
    """
    key = trial.topic_key()
    master = trial.store.master_of(key)
    trial.pass_time(0.5, 1.0)
    since_ms = trial.note("cut off", master)
    trial.store.cut_off(master)
    _may_lose(trial, since_ms, now_ms() + LEASE_MS)
    trial.store.promoted(master, key)
    assert master.is_master, "the old master learned of its replacement, although it is cut off"
    trial.pass_time(LEASE_MS / 1000 + 0.5, LEASE_MS / 1000 + 1.5)
    trial.deployment.heal()
    trial.pass_time(0.5, 1.0)


def master_hidden(trial: StoreTrial) -> None:
    """Hide a healthy master from those who replace masters: clients and replicas stay with it until they learn of that.

    So for a while a replica that was not promoted confirms writes that the promoted one does not have.
    """
    key = trial.topic_key()
    master = trial.store.master_of(key)
    trial.pass_time(0.5, 1.0)
    since_ms = trial.note("hidden", master)
    trial.store.hide(master)
    trial.store.promoted(master, key)
    if not trial.every_copy_confirms:
        trial.allow_loss(since_ms, now_ms() + LEASE_MS)
    trial.pass_time(LEASE_MS / 1000 + 0.5, LEASE_MS / 1000 + 1.5)
    trial.deployment.heal()
    trial.pass_time(0.5, 1.0)


def replica_lost(trial: StoreTrial) -> None:
    """Kill a replica for longer than a lease, and start it again; its master lives on."""
    master = trial.busy_master()
    replica = trial.rng.choice(trial.store.replicas_of(master))
    trial.pass_time(0.5, 1.0)
    trial.kill(replica.name)
    trial.pass_time(LEASE_MS / 1000 + 0.5, LEASE_MS / 1000 + 1.5)
    trial.start(replica.name)
    trial.deployment.heal()
    trial.pass_time(0.5, 1.0)


def hand_over(trial: StoreTrial) -> None:
    """Have an operator request a fail-over in which the master holds writes back until the replica has everything."""
    for _ in range(2):
        key, store = trial.topic_key(), trial.store
        master = store.master_of(key)
        trial.pass_time(0.5, 1.0)
        trial.note("hand-over", master)
        if isinstance(store, ClusterStore):
            store.hand_over(store.replicas_of(master)[0])
        elif isinstance(store, SentinelStore):
            store.fail_over("COORDINATED")
        store.promoted(master, key)
        trial.deployment.heal()
        trial.pass_time(0.5, 1.0)


def forced_fail_over(trial: StoreTrial) -> None:
    """Have an operator request a fail-over from Sentinel without coordination.

    The old master is alive and learns of it late: until then it confirms writes with the replicas that still follow it.
    """
    store = trial.store
    assert isinstance(store, SentinelStore)
    for _ in range(2):
        master = store.master_of("")
        trial.pass_time(0.5, 1.0)
        since_ms = trial.note("forced fail-over", master)
        store.fail_over()
        store.promoted(master, "")
        if not trial.every_copy_confirms:
            trial.allow_loss(since_ms, now_ms() + LEASE_MS)
        trial.deployment.heal()
        trial.pass_time(0.5, 1.0)


def slot_moved(trial: StoreTrial) -> None:
    """Move slots of a topic-partition and of share state to another master while they are in use, and back."""
    store = trial.store
    assert isinstance(store, ClusterStore)
    for key in (trial.topic_key(), trial.state_key(), trial.topic_key()):
        home = store.master_of(key)
        away = trial.rng.choice([node for node in store.nodes if node.is_master and node is not home])
        for target in (away, home):
            trial.note(f"slot of {key} moves", target)
            store.move_slot(key, target)
            trial.pass_time(0.5, 1.2)


def services_die(trial: StoreTrial) -> None:
    """Kill a consumer, then each service, then all at once; pause a leader beyond its lease."""
    trial.pass_time(0.3, 0.8)
    trial.record_of_worker("SIGKILL", "consumer0")
    trial.load.kill_worker("consumer0")
    trial.load.start_worker("consumer9", "consumer")
    for role in (PARTITION_LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR):
        name = trial.names(role)[0]
        trial.kill(name)
        trial.start(name)
        trial.pass_time(0.5, 1.0)
    trial.kill(*trial.everybody())
    trial.start(*trial.everybody())
    trial.pass_time(1.0, 1.5)
    sleeper = trial.leader(trial.a_partition())
    trial.pause(sleeper)
    trial.pass_time(LEASE_MS / 1000 + 1.0, LEASE_MS / 1000 + 2.0)
    trial.resume(sleeper)
    trial.pass_time(0.5, 1.0)


def took_over_at(promoted: ValkeyNode) -> int:
    """Return the offset up to which a promoted replica has its master's writes."""
    return int(promoted.info()["second_repl_offset"])


def _may_lose(trial: StoreTrial, since_ms: int, until_ms: int | None = None) -> None:
    """Allow losses if one copy confirms a write, since that copy can be lost. If two do, a fail-over leaves one."""
    if trial.min_insync_replicas == 1:
        trial.allow_loss(since_ms, until_ms)
