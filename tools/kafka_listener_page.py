"""Generates docs/reference/kafka-listener.md: the APIs that the Kafka listener offers, in which versions, by which RPC
each is answered, and how it differs from a Kafka broker."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import APIS, api
from kafka_listener.offers import Offers
from kafka_listener.requests.table import HANDLERS
from shard_runtime.rpc.table import RPCS
from tools.kafka_transcripts.differences import DIFFERENCES as TOOLS_DIFFER

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "kafka-listener.md"
_INTRODUCTION: Final = """# The Kafka listener: APIs, versions, and what differs

Made from the tables of the listener by `make docs`; do not edit. How to use it: [Kafka's own
clients](../howto/kafka-clients.md). These are the keys and versions that ApiVersions lists. A request becomes the RPC
named beside it, with that RPC's checks, bounds and permissions ([protocol](protocol.md)). A request with another key or
version closes its connection, as a broker does; clients know from ApiVersions what to leave out.
"""
_TOOLS: Final = """## What Kafka's tools print differently

`python -m tools.kafka_transcripts` runs some 150 commands of the tools of Kafka 4.4 against a node and against a
broker, and compares what they print. Besides ids, times and the words of errors, these differ:
"""
#: What a connection does for each request besides `call`, and the RPC that this calls.
_OTHER_CALLS: Final = {"produce": "ProduceStream", "share_fetch": "ShareStream", "share_acknowledge": "ShareStream"}
_BY_ITSELF: Final = "the listener"


class Difference(NamedTuple):
    """How the listener differs from a Kafka broker. `rule`: the clause of the specification that says so, which the
    page does not show; `apis`: those that it concerns, none for all of them."""

    rule: str
    apis: tuple[str, ...]
    text: str


DIFFERENCES: Final = (
    Difference("KL-36", (), "A message has at most 65,536 elements: structs and strings of its arrays, and tagged "
               "fields; sixteen numbers of an array count as one. A broker bounds only the bytes."),
    Difference("KL-35 (a)", (), "A struct has at most 127 tagged fields."),
    Difference("KL-33 (c)", (), "The length of a null value is −1 alone. A broker takes any negative length."),
    Difference("KL-33 (d)", (), "Text that is not UTF-8, and a tagged field that ends elsewhere than it says, are "
               "malformed, and close the connection. A broker replaces the one and does not check the other."),
    Difference("KL-32", (), "A value for a field that the version lacks is left out. A broker refuses some of them."),
    Difference("KL-4 (a)", (), "At most 64 requests of a connection are under way; then it is not read."),
    Difference("KL-108", (), "A connection ends at `connections.max.age.ms`, or with its client's certificate: when "
               "its members hold no records, and at most 30 s later. A broker ends those alone that have not "
               "authenticated again by SASL."),
    Difference("KL-1 (b)", (), "The limit of a request is `rpc.request.max.bytes` for Produce, 1 MiB for all others."),
    Difference("KL-13 (a)", ("ApiVersions",), "The features are `share.version` and `transaction.version` alone."),
    Difference("KL-21 (a)", ("SaslHandshake",), "PLAIN and OAUTHBEARER, which show the password or token, are offered "
               "with TLS and to clients on the same machine alone."),
    Difference("KL-43 (a)", ("Metadata",), "Brokers are the nodes that have the listener; the controller is the asked "
               "node. Replicas and in-sync replicas are the leader alone, since the store replicates."),
    Difference("KL-43 (c)", ("Metadata", "DescribeTopicPartitions", "DescribeShareGroupOffsets"), "Leader epochs are "
               "seconds since 2026; a broker's begin at 0 and grow by 1."),
    Difference("KL-43 (d)", ("Metadata",), "There are no internal topics."),
    Difference("KL-45", ("Metadata",), "No topic is created on the way, whatever `allow_auto_topic_creation` says."),
    Difference("KL-46 (a)", ("FindCoordinator",), "Keys of share-partitions (type 2) get INVALID_REQUEST: only brokers "
               "ask for them."),
    Difference("KL-48", ("FindCoordinator", "InitProducerId"), "Transactions need a client that knows KIP-890, such as "
               "Java's from 4.0 on: FindCoordinator 6 and InitProducerId 5. From others, as librdkafka 2.16, a "
               "transactional id is refused with CLUSTER_AUTHORIZATION_FAILED and the reason."),
    Difference("KL-100 (a)", ("EndTxn",), "Only version 5 is served, and neither AddPartitionsToTxn nor the requests "
               "for offsets in transactions."),
    Difference("KL-102 (a)", ("InitProducerId",), "Transactions in two phases get TRANSACTIONAL_ID_AUTHORIZATION_"
               "FAILED."),
    Difference("KL-104 (b)", ("EndTxn",), "After a transaction that was aborted, as at its time-out, its producer goes "
               "on. A broker fences it."),
    Difference("KL-104 (c)", ("EndTxn",), "It is not checked that every partition with confirmed records is known to "
               "the transaction: Kafka's clients do not name them."),
    Difference("KL-47", ("InitProducerId",), "An idempotent producer gets a new id each time, with epoch 0."),
    Difference("KL-49 (a)", ("Produce",), "Versions 0 to 2 are listed, as librdkafka needs that, but close the "
               "connection. A batch with another magic than 2 gets UNSUPPORTED_FOR_MESSAGE_FORMAT, not "
               "INVALID_RECORD."),
    Difference("KL-52 (a)", ("Fetch",), "There are no fetch sessions: the session id is 0, and clients send whole "
               "requests. Another session epoch than 0 and −1 gets FETCH_SESSION_ID_NOT_FOUND."),
    Difference("KL-52 (b)", ("Fetch",), "Requests of replicas are answered like those of consumers; the preferred "
               "replica is −1."),
    Difference("KL-53", ("Fetch",), "Batches of this project's own producers are made into Kafka's format. The leader "
               "epoch of a batch is −1."),
    Difference("KL-57 (b)", ("CreateTopics",), "A replication factor has no effect; 0, or below −1, gets "
               "INVALID_REPLICATION_FACTOR."),
    Difference("KL-57 (b)", ("CreateTopics", "CreatePartitions"), "A replica assignment gets "
               "INVALID_REPLICA_ASSIGNMENT: partitions cannot be placed."),
    Difference("KL-58", ("DeleteTopics",), "A topic with both name and id, or neither, gets INVALID_REQUEST; a broker "
               "refuses all of the request. A topic that is named twice is deleted, and answered twice."),
    Difference("KL-60", ("DescribeConfigs", "IncrementalAlterConfigs"), "For topics, brokers and groups; loggers (8) "
               "and client metrics (16) get INVALID_REQUEST."),
    Difference("KL-60 (a)", ("DescribeConfigs", "IncrementalAlterConfigs"), "Topics, brokers and groups have the "
               "configs that mean something here, and this project's own; others, such as `segment.ms` of a topic, get "
               "INVALID_CONFIG. The default of a topic's config has the config's name among the synonyms, not the "
               "broker's."),
    Difference("KL-73 (a)", ("DescribeShareGroupOffsets",), "The start offset is that of the first record that is not "
               "finished; a broker's lags one write."),
    Difference("KL-73 (b)", ("AlterShareGroupOffsets",), "It raises the group's epoch; a 4.4.0 broker does not."),
    Difference("KL-64", ("DescribeClientQuotas", "AlterClientQuotas"), "For users and client ids; quotas for addresses "
               "(`ip`) are refused."),
    Difference("KL-81 (c)", ("ShareFetch", "ShareAcknowledge"), "A share session belongs to the connection that opened "
               "it; over another one its epoch gets INVALID_SHARE_SESSION_EPOCH, and nothing changes."),
    Difference("KL-83 (a)", ("ShareFetch",), "The leader epoch of a batch is −1, \"not known\"."),
    Difference("KL-85", ("ShareFetch",), "An answer that only refuses is held back for 200 ms, as some clients repeat "
               "a refused fetch at once and for ever."),
    Difference("KL-86", ("ShareFetch",), "`throttle_time_ms` is at most 1 s, so that acknowledgements are not held "
               "back until locks run out; the leader delays the next fetch instead."),
)  # fmt: skip

#: What a broker has and the listener may lack: for what, which APIs, and what to use instead.
_LACKED: Final = (
    ("Consumer groups, classic and new, and their offsets",
     "JoinGroup SyncGroup Heartbeat LeaveGroup DescribeGroups OffsetCommit OffsetFetch OffsetDelete "
     "ConsumerGroupHeartbeat ConsumerGroupDescribe",
     "a share group, or a consumer that assigns itself partitions and keeps its offsets"),
    ("Streams groups", "StreamsGroupHeartbeat StreamsGroupDescribe", "nothing"),
    ("Transactions of clients that do not know KIP-890, and lists of transactions",
     "AddPartitionsToTxn AddOffsetsToTxn TxnOffsetCommit WriteTxnMarkers DescribeProducers DescribeTransactions "
     "ListTransactions",
     "[transactions](../howto/transactions.md) of this project's own producer, which Kafka's clients can read"),
    ("Replacing all configs of a resource", "AlterConfigs", "IncrementalAlterConfigs"),
    ("Replicas and log directories",
     "ElectLeaders AlterPartitionReassignments ListPartitionReassignments AlterReplicaLogDirs DescribeLogDirs "
     "OffsetForLeaderEpoch",
     "`sharegroups topics describe` for sizes; the store replicates, and leaders move by themselves"),
    ("Delegation tokens",
     "CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken",
     "users with passwords, tokens (OAUTHBEARER) or certificates: [secure](../howto/secure.md)"),
    ("Features, quorum, metrics of clients",
     "UpdateFeatures DescribeQuorum AddRaftVoter RemoveRaftVoter GetTelemetrySubscriptions PushTelemetry "
     "ListConfigResources",
     "`sharegroups features` for features; [metrics](metrics.md)"),
)  # fmt: skip


class Row(NamedTuple):
    """An API: its key and name, the versions that ApiVersions lists, and the RPCs that answer it, first the one of the
    same name."""

    key: int
    name: str
    least: int
    greatest: int
    rpcs: tuple[str, ...]


def kafka_listener_page() -> str:
    """Return the text of the page."""
    found = list(rows())
    names = {row.name for row in found}
    lines = [_INTRODUCTION, "## APIs", ""]
    lines += ["| Key | API | Versions | Answered by | What differs from a Kafka broker |", "|---|---|---|---|---|"]
    lines += [_line(row) for row in found]
    lines += ["", "## What differs for all APIs", ""]
    lines += [f"- {each.text}" for each in DIFFERENCES if not each.apis]
    lines += ["", "## What is not served", "", "Clients and tools report these as not supported by the broker.", ""]
    lines += ["| What | APIs of Kafka | Instead |", "|---|---|---|"]
    for what, lacked, instead in _LACKED:
        if missing := [name for name in lacked.split() if name not in names]:
            lines.append(f"| {what} | {', '.join(missing)} | {instead} |")
    lines += ["", _TOOLS, "| Tool | What differs |", "|---|---|"]
    texts = dict.fromkeys((", ".join(f"`kafka-{tool}`" for tool in each.tools), each.text) for each in TOOLS_DIFFER)
    lines += [f"| {tools} | {text} |" for tools, text in texts]
    return "\n".join([*lines, ""])


def rows() -> Iterator[Row]:
    """Yield what the listener answers to ApiVersions, in the order of the keys."""
    for each in asyncio.run(_offered()).api_keys:
        row, name = HANDLERS.get(each.api_key), APIS[each.api_key].name
        rpcs = _rpcs_of(row.answer.__module__) if row is not None else ()
        ordered = tuple(sorted(dict.fromkeys(rpcs), key=lambda rpc: rpc != name))
        yield Row(each.api_key, name, each.min_version, each.max_version, ordered)


async def _offered() -> Any:
    """Return the answer to ApiVersions, which does not depend on the connection."""
    asked = api("ApiVersions")
    connection: Any = None
    return await Offers().handlers[asked.key].answer(asked.request(), 0, connection)


def _rpcs_of(module: str) -> Iterator[str]:
    """Yield the RPCs that the source of a handler calls."""
    by_call = {_snake(row.name): row.name for row in RPCS.values()}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr in _OTHER_CALLS:
            yield _OTHER_CALLS[node.func.attr]
        elif node.func.attr == "call" and node.args and isinstance(node.args[0], ast.Constant):
            yield by_call[str(node.args[0].value)]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _line(row: Row) -> str:
    rpcs = ", ".join(f"`{name}`" for name in row.rpcs) or _BY_ITSELF
    versions = str(row.least) if row.least == row.greatest else f"{row.least} to {row.greatest}"
    differs = " ".join(each.text for each in DIFFERENCES if row.name in each.apis)
    return f"| {row.key} | {row.name} | {versions} | {rpcs} | {differs} |".replace("  ", " ")
