"""Kafka's messages, beside kio's: each message of the table in each version, both ways, byte for byte; and what kio has
that the table does not."""

from __future__ import annotations

import contextlib
import random
import re
from typing import Any, Final

import pytest
from hypothesis import given, settings
from kio.schema.index import api_key_map, schema_name_map

from kafka_listener.messages.apis import APIS, Api
from kafka_listener.messages.errors import MalformedMessageError
from tests.support.kafka_values import DIRECTIONS, damaged, full, in_version, values
from tests.support.kio_messages import SPECIAL, decoded, encoded, entity_of, schema

#: Damaged requests that are compared.
DAMAGED: Final = 2_500
#: APIs of kio that the table leaves out, and why.
LEFT_OUT: Final = {
    "classic and consumer groups, and their offsets, are not served": {
        "offset_commit", "offset_fetch", "join_group", "heartbeat", "leave_group", "sync_group", "describe_groups",
        "offset_delete", "consumer_group_heartbeat", "consumer_group_describe", "add_offsets_to_txn",
        "txn_offset_commit",
    },
    "streams groups are not served": {"streams_group_heartbeat", "streams_group_describe"},
    "between brokers, and with their controllers: nodes speak gRPC with each other": {
        "write_txn_markers", "vote", "begin_quorum_epoch", "end_quorum_epoch", "alter_partition", "envelope",
        "fetch_snapshot", "broker_registration", "broker_heartbeat", "allocate_producer_ids",
        "controller_registration", "assign_replicas_to_dirs",
    },
    "between a group's coordinator and its share coordinator: nodes speak gRPC with each other": {
        "initialize_share_group_state", "read_share_group_state", "write_share_group_state",
        "delete_share_group_state", "read_share_group_state_summary",
    },
    "about replicas, directories of logs and quorums, which a cluster here does not have": {
        "alter_replica_log_dirs", "describe_log_dirs", "elect_leaders", "alter_partition_reassignments",
        "list_partition_reassignments", "describe_quorum", "unregister_broker", "add_raft_voter",
        "remove_raft_voter", "update_raft_voter", "offset_for_leader_epoch",
    },
    "delegation tokens are not served": {
        "create_delegation_token", "renew_delegation_token", "expire_delegation_token", "describe_delegation_token",
    },
    "features of the cluster are changed by its own commands": {"update_features"},
    "replaced by IncrementalAlterConfigs": {"alter_configs"},
    "no node collects the metrics of clients": {"get_telemetry_subscriptions", "push_telemetry"},
    "administration of transactions and lists of config resources have commands of this project": {
        "describe_producers", "describe_transactions", "list_transactions", "list_config_resources",
    },
}  # fmt: skip
#: Versions of kio that the table leaves out, and why.
LEFT_OUT_VERSIONS: Final = {
    ("fetch", 18): "followers report which high watermark they know",
}


def name_of(api: Api) -> str:
    """kio's name of an API."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).lower()


@pytest.mark.rule("KL-30", "KL-31", "KL-32")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_each_version_has_the_bytes_and_the_fields_of_kio(api: Api, direction: str) -> None:
    encode, decode = getattr(api, f"encode_{direction}"), getattr(api, f"decode_{direction}")

    def compare(value: Any, version: int) -> None:
        data = b"".join(encode(version, value))
        entity = entity_of(schema(api, direction, version), value)
        assert encoded(entity) == data
        assert decoded(api, direction, version, data) == entity
        assert decode(version, data) == value

    @settings(max_examples=8)
    @given(values(api, direction, SPECIAL))
    def drawn(value: Any) -> None:
        for version in api.versions:
            compare(in_version(value, api.message(direction), version), version)

    for version in api.versions:
        compare(full(api, direction, version), version)
    drawn()


@pytest.mark.rule("KL-30")
def test_all_that_kio_has_is_in_the_table_or_left_out_for_a_reason() -> None:
    ours = {name_of(api): api for api in APIS.values()}
    left_out = [name for names in LEFT_OUT.values() for name in names]
    assert len(left_out) == len(set(left_out))
    assert {name: key for key, name in api_key_map.items() if name not in left_out} == {
        name: api.key for name, api in ours.items()
    }
    versions = {(name, version) for name in ours for version in schema_name_map[name]}
    assert versions - {(name, version) for name, api in ours.items() for version in api.versions} == {
        *LEFT_OUT_VERSIONS
    }


@pytest.mark.rule("KL-33")
def test_a_damaged_request_that_is_read_says_to_kio_what_it_says_to_us() -> None:
    """Not the other way: kio takes more than we do, and a count that is too large ends its process."""
    rng, read = random.Random(20261127), 0
    apis = list(APIS.values())
    for _ in range(DAMAGED):
        api = rng.choice(apis)
        version = rng.choice(api.versions)
        data = damaged(b"".join(api.encode_request(version, full(api, "request", version))), rng)
        with contextlib.suppress(MalformedMessageError):
            value = api.decode_request(version, data)
            if b"".join(api.encode_request(version, value)) == data:  # else kio may refuse what we and Kafka pass over
                assert decoded(api, "request", version, data) == entity_of(schema(api, "request", version), value)
                read += 1
    assert read > DAMAGED // 10
