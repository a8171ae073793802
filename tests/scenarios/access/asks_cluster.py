"""The questions about `ClusterService`."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kip932.acls import Operation as Op
from kip932.ids import (
    KEY_TYPE_GROUP,
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    RESOURCE_BROKER,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    SharePartitionKey,
)
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.ask import (
    ANY_NAME,
    PASSED,
    Ask,
    C,
    Clause,
    G,
    Right,
    Shown,
    T,
    X,
    first_error,
    need,
)
from tests.scenarios.access.stage import GROUP, TOPIC, TRANSACTION, Stage

NEW_TOPIC = "new-topic"
LETTERS = "dlq.letters"
NEW_LETTERS = "dlq.new"
_UNSET = -(1 << 31)


def new(name: str, **fields: Any) -> Any:
    """Return a request of an RPC."""
    return METHODS[name].request_type(**fields)


class _Find(Ask):
    rpc = "FindCoordinator"
    key_type = KEY_TYPE_GROUP
    key = GROUP

    async def request(self, stage: Stage, number: int) -> Any:
        key = SharePartitionKey(GROUP, stage.topic_id, 0).text if self.key_type == KEY_TYPE_SHARE else self.key
        return new("FindCoordinator", key_type=self.key_type, coordinator_keys=[key])


class FindGroup(_Find):
    clauses = (need(Op.DESCRIBE, G, "GAF", "coordinators"),)


class FindTransaction(_Find):
    clauses = (need(Op.DESCRIBE, X, "XAF", "coordinators"),)
    passed = Shown("INVALID_REQUEST", "coordinators")  # GC-130: every node answers for transactions
    key_type = KEY_TYPE_TRANSACTION
    key = TRANSACTION


class FindShare(_Find):
    clauses = (need(Op.CLUSTER_ACTION, C, "CAF", "coordinators"),)
    key_type = KEY_TYPE_SHARE


class MetadataOfAll(Ask):
    rpc = "Metadata"
    clauses = (need(Op.DESCRIBE, T, "left out", "topics"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("Metadata")

    def shown(self, answer: Any) -> Shown:
        return PASSED if [topic.name for topic in answer.topics] == [TOPIC] else Shown("left out", "topics")


class MetadataByName(Ask):
    rpc = "Metadata"
    clauses = (need(Op.DESCRIBE, T, "TAF", "topics"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("Metadata")
        request.topics.values.add(name=TOPIC)
        return request


class MetadataById(MetadataByName):
    async def request(self, stage: Stage, number: int) -> Any:
        request = new("Metadata")
        request.topics.values.add(topic_id=stage.topic_id)
        return request


class MetadataByUnknownId(Ask):
    rpc = "Metadata"
    clauses = ()
    passed = Shown("UNKNOWN_TOPIC_ID", "topics")

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("Metadata")
        request.topics.values.add(topic_id=b"unknown-topic-id")
        return request


class DescribeCluster(Ask):
    rpc = "DescribeCluster"
    clauses = (need(Op.DESCRIBE, C, "not set", "cluster_authorized_operations"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("DescribeCluster", include_cluster_authorized_operations=True)

    def shown(self, answer: Any) -> Shown:
        assert (answer.error_code, len(answer.brokers)) == (0, 1)
        unset = answer.cluster_authorized_operations == _UNSET
        return Shown("not set", "cluster_authorized_operations") if unset else PASSED


class CreateTopics(Ask):
    rpc = "CreateTopics"
    clauses = (
        Clause((Right(Op.CREATE, T, NEW_TOPIC), Right(Op.CREATE, C)), Shown("TAF", "topics")),
        need(Op.DESCRIBE_CONFIGS, T, "−1", "topics", NEW_TOPIC),
    )

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("CreateTopics", timeout_ms=10_000)
        request.topics.add(name=NEW_TOPIC, num_partitions=1, replication_factor=1)
        return request

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        return Shown("−1", "topics") if found == PASSED and answer.topics[0].num_partitions == -1 else found

    async def after(self, stage: Stage, number: int) -> None:
        await stage.delete_topic(NEW_TOPIC)


class CreateExisting(Ask):
    rpc = "CreateTopics"
    clauses = (Clause((Right(Op.CREATE, T), Right(Op.CREATE, C)), Shown("TAF", "topics")),)
    passed = Shown("TOPIC_ALREADY_EXISTS", "topics")

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("CreateTopics", timeout_ms=10_000)
        request.topics.add(name=TOPIC, num_partitions=1, replication_factor=1)
        return request


class CreatePartitions(Ask):
    rpc = "CreatePartitions"
    clauses = (need(Op.ALTER, T, "TAF", "results"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("CreatePartitions", timeout_ms=10_000, validate_only=True)
        request.topics.add(name=TOPIC, count=2)
        return request


class DeleteByName(Ask):
    rpc = "DeleteTopics"
    clauses = (Clause((Right(Op.DELETE, T), Right(Op.DELETE, C)), Shown("TAF", "responses")),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DeleteTopics", timeout_ms=10_000)
        request.topics.add(name=TOPIC)
        return request

    async def after(self, stage: Stage, number: int) -> None:
        stage.topic_id = await stage.admin.create_topic(TOPIC)


class DeleteById(DeleteByName):
    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DeleteTopics", timeout_ms=10_000)
        request.topics.add(topic_id=stage.topic_id)
        return request


class DeleteUnknown(Ask):
    rpc = "DeleteTopics"
    clauses = (need(Op.DESCRIBE, T, "TAF", "responses", NEW_TOPIC),)
    passed = Shown("UNKNOWN_TOPIC_OR_PARTITION", "responses")

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DeleteTopics", timeout_ms=10_000)
        request.topics.add(name=NEW_TOPIC)
        return request


class _Configs(Ask):
    kind = RESOURCE_TOPIC
    resource = TOPIC
    key, value = "retention.ms", "5000"

    async def request(self, stage: Stage, number: int) -> Any:
        request = new(self.rpc)
        one = request.resources.add(resource_type=self.kind, resource_name=self.resource)
        if self.rpc == "IncrementalAlterConfigs":
            one.configs.add(name=self.key, config_operation=0, value=self.value)
        return request


class DescribeTopicConfigs(_Configs):
    rpc = "DescribeConfigs"
    clauses = (need(Op.DESCRIBE_CONFIGS, T, "TAF", "results"),)


class DescribeGroupConfigs(_Configs):
    rpc = "DescribeConfigs"
    clauses = (need(Op.DESCRIBE_CONFIGS, G, "GAF", "results"),)
    kind, resource = RESOURCE_GROUP, GROUP


class DescribeBrokerConfigs(_Configs):
    rpc = "DescribeConfigs"
    clauses = (need(Op.DESCRIBE_CONFIGS, C, "CAF", "results"),)
    kind, resource = RESOURCE_BROKER, ""


class AlterTopicConfigs(_Configs):
    rpc = "IncrementalAlterConfigs"
    clauses = (need(Op.ALTER_CONFIGS, T, "TAF", "responses"),)


class AlterGroupConfigs(_Configs):
    rpc = "IncrementalAlterConfigs"
    clauses = (need(Op.ALTER_CONFIGS, G, "GAF", "responses"),)
    kind, resource = RESOURCE_GROUP, GROUP
    key, value = "share.record.lock.duration.ms", "16000"


class AlterBrokerConfigs(_Configs):
    rpc = "IncrementalAlterConfigs"
    clauses = (need(Op.ALTER_CONFIGS, C, "CAF", "responses"),)
    kind, resource = RESOURCE_BROKER, ""
    key, value = "errors.deadletterqueue.topic.name.prefix", "dlq."


class NameLetters(_Configs):
    rpc = "IncrementalAlterConfigs"
    clauses: ClassVar[tuple[Clause, ...]] = (
        need(Op.ALTER_CONFIGS, G, "GAF", "responses"),
        Clause((Right(Op.WRITE, T, LETTERS),), Shown("TAF", "responses"), "(g)"),
    )
    kind, resource = RESOURCE_GROUP, GROUP
    key, value = "errors.deadletterqueue.topic.name", LETTERS

    async def prepare(self, stage: Stage) -> None:
        await stage.admin.create_topic(LETTERS, 1, {"errors.deadletterqueue.group.enable": "true"})

    async def after(self, stage: Stage, number: int) -> None:
        request = new("IncrementalAlterConfigs")
        one = request.resources.add(resource_type=self.kind, resource_name=self.resource)
        one.configs.add(name=self.key, config_operation=1)
        answer = await stage.admin.call("IncrementalAlterConfigs", request)
        assert not answer.responses[0].error_code, answer


class NameNewLetters(NameLetters):
    clauses = (
        need(Op.ALTER_CONFIGS, G, "GAF", "responses"),
        Clause((Right(Op.WRITE, T, NEW_LETTERS),), Shown("TAF", "responses"), "(g)"),
        Clause((Right(Op.CREATE, T, NEW_LETTERS), Right(Op.CREATE, C)), Shown("TAF", "responses"), "(g)"),
    )
    value = NEW_LETTERS

    async def prepare(self, stage: Stage) -> None:
        """Let nodes create the topic with the first dead letter."""
        request = new("IncrementalAlterConfigs")
        one = request.resources.add(resource_type=RESOURCE_BROKER, resource_name="")
        one.configs.add(name="errors.deadletterqueue.auto.create.topics.enable", config_operation=0, value="true")
        answer = await stage.admin.call("IncrementalAlterConfigs", request)
        assert not answer.responses[0].error_code, answer


class InitIdempotent(Ask):
    rpc = "InitProducerId"
    clauses = (Clause((Right(Op.IDEMPOTENT_WRITE, C), Right(Op.WRITE, T, ANY_NAME)), Shown("CAF")),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("InitProducerId", producer_id=-1, producer_epoch=-1)


class _Transactional(Ask):
    """Requests about an open transaction of the known id, with a record in the topic."""

    def __init__(self) -> None:
        self._writer: Writer | None = None

    async def prepare(self, stage: Stage) -> None:
        self._writer = Writer(stage.admin, stage.topic_id)
        self._writer.transactional_id = TRANSACTION
        await self._writer.write(1)

    @property
    def writer(self) -> Writer:
        """The producer of the open transaction."""
        assert self._writer is not None
        return self._writer


class InitTransactional(_Transactional):
    rpc = "InitProducerId"
    clauses = (need(Op.WRITE, X, "XAF"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new(
            "InitProducerId",
            transactional_id=TRANSACTION,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )


class EndTxn(_Transactional):
    rpc = "EndTxn"
    clauses = (need(Op.WRITE, X, "XAF"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new(
            "EndTxn",
            transactional_id=TRANSACTION,
            producer_id=self.writer.producer_id,
            producer_epoch=self.writer.epoch,
            committed=True,
        )
        request.topics.add(topic_id=stage.topic_id, partition_indexes=[0])
        return request

    async def after(self, stage: Stage, number: int) -> None:
        await self.prepare(stage)


class EndByOperator(EndTxn):
    async def request(self, stage: Stage, number: int) -> Any:
        request: Any = await super().request(stage, number)
        request.by_operator, request.committed = True, False
        return request


class ListTransactions(_Transactional):
    rpc = "ListTransactions"
    clauses = (need(Op.DESCRIBE, X, "left out", "transaction_states"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ListTransactions")

    def shown(self, answer: Any) -> Shown:
        assert not answer.error_code, answer
        listed = [each.transactional_id for each in answer.transaction_states]
        return PASSED if listed == [TRANSACTION] else Shown("left out", "transaction_states")


class DescribeTransactions(_Transactional):
    rpc = "DescribeTransactions"
    clauses = (
        need(Op.DESCRIBE, X, "XAF", "transaction_states"),
        need(Op.DESCRIBE, T, "left out", "transaction_states.topics"),
    )

    async def request(self, stage: Stage, number: int) -> Any:
        return new("DescribeTransactions", transactional_ids=[TRANSACTION])

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        hidden = found == PASSED and not answer.transaction_states[0].topics
        return Shown("left out", "transaction_states.topics") if hidden else found


class _Entries(Ask):
    """Requests about access control entries themselves."""

    @staticmethod
    def fill(entry: Any) -> None:
        """Fill an entry that no case uses."""
        entry.resource_type, entry.resource_name, entry.resource_pattern_type = T, "unused", 3
        entry.principal, entry.host, entry.operation, entry.permission_type = "User:unused", "*", Op.READ, 3


class CreateAcls(_Entries):
    rpc = "CreateAcls"
    clauses = (need(Op.ALTER, C, "CAF", "results"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("CreateAcls")
        self.fill(request.creations.add())
        return request


class DeleteAcls(_Entries):
    rpc = "DeleteAcls"
    clauses = (need(Op.ALTER, C, "CAF", "filter_results"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DeleteAcls")
        self.fill(request.filters.add())
        return request


class DescribeAcls(_Entries):
    rpc = "DescribeAcls"
    clauses = (need(Op.DESCRIBE, C, "CAF"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DescribeAcls")
        self.fill(request.filter)
        return request


class AlterClientQuotas(Ask):
    rpc = "AlterClientQuotas"
    clauses = (need(Op.ALTER_CONFIGS, C, "CAF", "entries"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("AlterClientQuotas")
        entry = request.entries.add()
        entry.entity.add(entity_type="user", entity_name="unused")
        entry.ops.add(key="producer_byte_rate", value=1)
        return request


class DescribeClientQuotas(Ask):
    rpc = "DescribeClientQuotas"
    clauses = (need(Op.DESCRIBE_CONFIGS, C, "CAF"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("DescribeClientQuotas")


class DescribeUsers(Ask):
    rpc = "DescribeUserScramCredentials"
    clauses = (need(Op.DESCRIBE, C, "CAF"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("DescribeUserScramCredentials")


class AlterUsers(Ask):
    rpc = "AlterUserScramCredentials"
    clauses = (need(Op.ALTER, C, "CAF", "results"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("AlterUserScramCredentials")
        request.upsertions.add(
            name=f"user{number}", mechanism=1, iterations=4_096, salt=b"s" * 16, salted_password=b"p" * 32
        )
        return request


#: The questions by name.
QUESTIONS: Final[dict[str, type[Ask]]] = {
    "FindCoordinator of a group": FindGroup,
    "FindCoordinator of a transaction": FindTransaction,
    "FindCoordinator of share state": FindShare,
    "Metadata of all topics": MetadataOfAll,
    "Metadata by name": MetadataByName,
    "Metadata by id": MetadataById,
    "Metadata by an unknown id": MetadataByUnknownId,
    "DescribeCluster": DescribeCluster,
    "CreateTopics": CreateTopics,
    "CreateTopics of a topic that exists": CreateExisting,
    "CreatePartitions": CreatePartitions,
    "DeleteTopics by name": DeleteByName,
    "DeleteTopics by id": DeleteById,
    "DeleteTopics of an unknown name": DeleteUnknown,
    "DescribeConfigs of a topic": DescribeTopicConfigs,
    "DescribeConfigs of a group": DescribeGroupConfigs,
    "DescribeConfigs of a broker": DescribeBrokerConfigs,
    "IncrementalAlterConfigs of a topic": AlterTopicConfigs,
    "IncrementalAlterConfigs of a group": AlterGroupConfigs,
    "IncrementalAlterConfigs of a broker": AlterBrokerConfigs,
    "IncrementalAlterConfigs that names a dead-letter topic": NameLetters,
    "IncrementalAlterConfigs that names a dead-letter topic to be created": NameNewLetters,
    "InitProducerId without a transactional id": InitIdempotent,
    "InitProducerId with a transactional id": InitTransactional,
    "EndTxn": EndTxn,
    "EndTxn by an operator": EndByOperator,
    "ListTransactions": ListTransactions,
    "DescribeTransactions": DescribeTransactions,
    "CreateAcls": CreateAcls,
    "DeleteAcls": DeleteAcls,
    "DescribeAcls": DescribeAcls,
    "AlterClientQuotas": AlterClientQuotas,
    "DescribeClientQuotas": DescribeClientQuotas,
    "DescribeUserScramCredentials": DescribeUsers,
    "AlterUserScramCredentials": AlterUsers,
}
