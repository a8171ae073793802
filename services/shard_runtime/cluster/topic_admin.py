"""CreateTopics, CreatePartitions, DeleteTopics, InitProducerId (CM-21, CM-43a).

Checks run inside the metadata log's compare-and-set, so two nodes never create the same topic. All topics of a request
that pass their checks are changed in one version; each topic has its own result.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kip932.acls import CLUSTER_NAME, Operation, ResourceType
from kip932.api.v1.create_partitions_pb2 import CreatePartitionsRequest, CreatePartitionsResponse
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest, CreateTopicsResponse
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsRequest, DeleteTopicsResponse
from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsRequest, DescribeTransactionsResponse
from kip932.api.v1.end_txn_pb2 import EndTxnRequest, EndTxnResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kip932.api.v1.list_transactions_pb2 import ListTransactionsRequest, ListTransactionsResponse
from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import (
    CHANGED_TOPICS_MAX,
    NULL_TOPIC_ID,
    RESOURCE_TOPIC,
    TOPIC_NAME_RULE,
    topic_id_text,
    valid_topic_name,
)
from kip932.quotas import MUTATION_RATE
from shard_runtime.clock import Clock
from shard_runtime.cluster.lookups import checked_topic_id
from shard_runtime.cluster.metadata import Change, MetadataImage, PartitionsAdded, TopicCreated, TopicDeleted
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.config.kafka_configs import DEFAULT_PARTITIONS
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import check_configs
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.quotas import Mutations
from shard_runtime.rpc.status import invalid_argument

PARTITIONS_MAX: Final = 10_000
#: The maximum number of partitions of all topics together: each is a shard with its own lease, and the last live node
#: must be able to take over and keep all of them (CM-89). Partitions of a deleted topic count until their streams are
#: known to be removed, which bounds how many deletions the metadata must remember.
CLUSTER_PARTITIONS_MAX: Final = 20_000


class Transactional(Protocol):
    """Serves producers with a transactional id, and operators who inspect their transactions (CM-44, CM-157)."""

    async def begin(self, request: InitProducerIdRequest) -> tuple[int, int]:
        """Return (producer id, producer epoch) for the next transaction. Raises KafkaError."""
        ...

    async def end_txn(self, request: EndTxnRequest, context: CallContext) -> EndTxnResponse:
        """Commit or abort a transaction."""
        ...

    async def list_transactions(
        self, request: ListTransactionsRequest, context: CallContext
    ) -> ListTransactionsResponse:
        """Return one page of the transactional ids."""
        ...

    async def describe_transactions(
        self, request: DescribeTransactionsRequest, context: CallContext
    ) -> DescribeTransactionsResponse:
        """Return the records of transactional ids."""
        ...


def new_topic_id() -> bytes:
    """Return 16 random bytes whose text does not begin with a dash, which a command line would take for an option."""
    while True:
        topic_id = secrets.token_bytes(16)
        if topic_id != NULL_TOPIC_ID and not topic_id_text(topic_id).startswith("-"):
            return topic_id


def new_producer_id() -> int:
    """Return 63 random bits, never 0: in a message, 0 means that the field is not set (CM-110)."""
    while (producer_id := secrets.randbits(63)) == 0:
        pass
    return producer_id


class TopicAdmin:
    """Serves the RPCs that change topics, and InitProducerId."""

    def __init__(
        self,
        metadata: MetadataLog,
        configs: EffectiveConfigs,
        clock: Clock,
        transactions: Transactional | None = None,
        history: Callable[[], str] = lambda: "",
    ) -> None:
        self._history = history
        self._metadata = metadata
        self._configs = configs
        self._clock = clock
        self._transactions = transactions

    # ---- create

    async def create_topics(self, request: CreateTopicsRequest, context: CallContext) -> CreateTopicsResponse:
        """Create topics; with `validate_only`, only check whether they could be created."""
        _bounded(request.topics)
        check_configs(sum(len(topic.configs) for topic in request.topics))
        names = Counter(topic.name for topic in request.topics)
        plan: list[TopicCreated | KafkaError] = []
        mutations = _mutations(context, request.validate_only)

        def decide(image: MetadataImage) -> Sequence[Change]:
            plan.clear()
            mutations.begin()
            partitions = image.partitions
            for asked in request.topics:
                try:
                    _require_creation(context, asked.name)
                    topic = self._checked_topic(image, asked, names[asked.name], partitions)
                    mutations.admit(topic.partitions)
                except KafkaError as error:
                    plan.append(error)
                else:
                    plan.append(topic)
                    partitions += topic.partitions
            return [] if request.validate_only else [topic for topic in plan if isinstance(topic, TopicCreated)]

        failure = await self._change_if(any(_may_create(context, asked.name) for asked in request.topics), decide)
        response = CreateTopicsResponse(throttle_time_ms=mutations.made())
        for asked, outcome in itertools.zip_longest(request.topics, plan):
            error = outcome if isinstance(outcome, KafkaError) else failure
            if error is not None:
                response.topics.add(
                    name=asked.name,
                    topic_id=NULL_TOPIC_ID,
                    error_code=error.code,
                    error_message=error.message,
                    num_partitions=-1,
                )
            elif isinstance(outcome, TopicCreated):
                topic_id = NULL_TOPIC_ID if request.validate_only else outcome.topic_id
                shown = context.may(ResourceType.TOPIC, asked.name, Operation.DESCRIBE_CONFIGS)
                response.topics.add(
                    name=asked.name, topic_id=topic_id, num_partitions=outcome.partitions if shown else -1
                )
        if failure is None and not request.validate_only:
            made = [topic for topic in plan if isinstance(topic, TopicCreated)]
            log_changes("topics_created", context, [_created_text(topic) for topic in made])
        return response

    def _checked_topic(
        self, image: MetadataImage, asked: CreateTopicsRequest.Topic, times: int, partitions: int
    ) -> TopicCreated:
        name = asked.name
        if times > 1:
            raise InvalidRequestError(f"topic {name!r} is named {times} times in the request")
        if not valid_topic_name(name):
            raise InvalidTopicError(
                f"topic name {name[:260]!r} is not valid: a name has {TOPIC_NAME_RULE}; and one that begins with '__' "
                "is reserved"
            )
        if name in image.topics:
            raise TopicAlreadyExistsError(f"topic {name!r} exists already")
        count = self._configs.broker(DEFAULT_PARTITIONS) if asked.num_partitions == -1 else asked.num_partitions
        _check_count(name, count, partitions)
        given = Counter(config.name for config in asked.configs)
        twice = [key for key, found in given.items() if found > 1]
        missing = [config.name for config in asked.configs if not config.HasField("value")]
        if twice or missing:
            raise InvalidConfigError(f"topic {name!r}: configs given twice: {twice}, without a value: {missing}")
        configs = {config.name: config.value for config in asked.configs}
        self._configs.check(RESOURCE_TOPIC, configs, frozenset(configs))
        return TopicCreated(name, new_topic_id(), count, configs, self._clock.wall_ms(), self._history())

    async def create_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Create one topic with the cluster's default number of partitions, for this node itself. An existing topic of
        that name is left as it is. Raises KafkaError."""
        asked = CreateTopicsRequest.Topic(name=name, num_partitions=-1)
        for key, value in configs.items():
            asked.configs.add(name=key, value=value)

        def decide(image: MetadataImage) -> Sequence[Change]:
            return [] if name in image.topics else [self._checked_topic(image, asked, 1, image.partitions)]

        failure = await self._change(decide)
        if failure is not None:
            raise failure

    # ---- grow

    async def create_partitions(
        self, request: CreatePartitionsRequest, context: CallContext
    ) -> CreatePartitionsResponse:
        """Raise partition counts; they never shrink."""
        _bounded(request.topics)
        names = Counter(topic.name for topic in request.topics)
        grown = 0  # partitions added to earlier topics of this request: they count towards the cluster's bound
        mutations = _mutations(context, request.validate_only)

        def begin() -> None:
            nonlocal grown
            grown = 0
            mutations.begin()

        def one(image: MetadataImage, asked: Any) -> Change:
            nonlocal grown
            if names[asked.name] > 1:
                raise InvalidRequestError(f"topic {asked.name!r} is named {names[asked.name]} times in the request")
            context.require(ResourceType.TOPIC, asked.name)
            topic = image.topics.get(asked.name)
            if topic is None:
                raise UnknownTopicOrPartitionError(f"topic {asked.name!r} does not exist")
            if asked.count <= topic.partitions:
                raise InvalidPartitionsError(
                    f"topic {asked.name!r} has {topic.partitions} partitions; {asked.count} would not grow it"
                )
            _check_count(asked.name, asked.count, image.partitions - topic.partitions + grown)
            mutations.admit(asked.count - topic.partitions)
            grown += asked.count - topic.partitions
            return PartitionsAdded(topic.topic_id, asked.count)

        allowed = any(context.may(ResourceType.TOPIC, asked.name) for asked in request.topics)
        outcomes = await self._each(request.topics, one, request.validate_only, begin, allowed=allowed)
        response = CreatePartitionsResponse(throttle_time_ms=mutations.made())
        for asked, outcome in zip(request.topics, outcomes, strict=True):
            error = outcome if isinstance(outcome, KafkaError) else None
            response.results.add(
                name=asked.name, error_code=error.code if error else 0, error_message=error.message if error else None
            )
        if not request.validate_only:
            done = [
                asked
                for asked, found in zip(request.topics, outcomes, strict=True)
                if not isinstance(found, KafkaError)
            ]
            log_changes("partitions_created", context, [f"{asked.name} to {asked.count}" for asked in done])
        return response

    # ---- delete

    async def delete_topics(self, request: DeleteTopicsRequest, context: CallContext) -> DeleteTopicsResponse:
        """Delete topics. Their owners remove the streams afterwards."""
        _bounded(request.topics)
        mutations = _mutations(context, False)

        def one(image: MetadataImage, asked: Any) -> Change:
            if asked.HasField("topic_id"):
                topic = image.by_id.get(asked.topic_id)
                if topic is None:
                    raise UnknownTopicIdError(f"topic id {topic_id_text(asked.topic_id)} is not known")
            else:
                topic = image.topics.get(asked.name)
                if topic is None:
                    _require_to_be_shown(context, asked.name)
                    raise UnknownTopicOrPartitionError(f"topic {asked.name!r} does not exist")
            if not context.may(ResourceType.CLUSTER, CLUSTER_NAME):
                if asked.HasField("topic_id"):
                    refused = context.refusal_by_id(topic.topic_id, topic.name)
                else:
                    refused = context.refusal(ResourceType.TOPIC, topic.name)
                if refused is not None:
                    raise refused
            mutations.admit(topic.partitions)
            return TopicDeleted(topic.topic_id, topic.name, self._clock.wall_ms(), topic.partitions)

        for asked in request.topics:
            if asked.HasField("topic_id"):
                checked_topic_id(asked.topic_id)
        allowed = context.may(ResourceType.CLUSTER, CLUSTER_NAME) or context.may_on_any(ResourceType.TOPIC)
        outcomes = await self._each(request.topics, one, False, mutations.begin, allowed=allowed)
        response = DeleteTopicsResponse(throttle_time_ms=mutations.made())
        for asked, outcome in zip(request.topics, outcomes, strict=True):
            if isinstance(outcome, TopicDeleted):
                response.responses.add(name=outcome.name, topic_id=outcome.topic_id)
            elif isinstance(outcome, KafkaError):
                response.responses.add(
                    name=asked.name if asked.HasField("name") else None,
                    topic_id=asked.topic_id or NULL_TOPIC_ID,
                    error_code=outcome.code,
                    error_message=outcome.message,
                )
        gone = {outcome.topic_id: outcome.name for outcome in outcomes if isinstance(outcome, TopicDeleted)}
        log_changes("topics_deleted", context, [f"{name} ({topic_id_text(key)})" for key, name in gone.items()])
        return response

    # ---- producers

    async def init_producer_id(self, request: InitProducerIdRequest, context: CallContext) -> InitProducerIdResponse:
        """Return a producer id: random, since a counter could repeat one after the store lost its tail (CM-43a)."""
        try:
            if not request.HasField("transactional_id"):
                _require_writer(context)
                return InitProducerIdResponse(producer_id=new_producer_id(), producer_epoch=0)
            context.require(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            if not request.transactional_id:
                raise InvalidRequestError("the transactional id is empty; leave it out for an idempotent producer")
            if self._transactions is None:
                raise InvalidRequestError("this node serves no transactions; leave the transactional id out")
            producer_id, epoch = await self._transactions.begin(request)
        except KafkaError as error:
            return InitProducerIdResponse(
                error_code=ErrorCode.ValueType(error.code),
                producer_id=-1,
                producer_epoch=-1,
                error_message=error.message,
            )
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    # ---- shared

    async def _each(
        self,
        topics: Sequence[Any],
        one: Callable[[MetadataImage, Any], Change],
        validate_only: bool,
        begin: Callable[[], None] = lambda: None,
        *,
        allowed: bool,
    ) -> list[Change | KafkaError]:
        """Return one change or error per topic of a request; the changes become one version. `begin` is called before
        each attempt. `allowed`: whether the caller may change any of them, as far as that is known before they are
        looked up."""
        outcomes: list[Change | KafkaError] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            outcomes.clear()
            begin()
            changes: dict[Change, None] = {}  # an ordered set: a topic named twice is deleted once
            for asked in topics:
                try:
                    outcomes.append(one(image, asked))
                except KafkaError as error:
                    outcomes.append(error)
            changes.update((outcome, None) for outcome in outcomes if not isinstance(outcome, KafkaError))
            return [] if validate_only else list(changes)

        failure = await self._change_if(allowed, decide)
        if failure is None:
            return outcomes
        return [
            outcome if isinstance(outcome, KafkaError) else failure for outcome in outcomes or [failure] * len(topics)
        ]

    async def _change_if(self, allowed: bool, decide: Callable[[MetadataImage], Sequence[Change]]) -> KafkaError | None:
        """Like `_change`, but a request of which nothing is allowed is decided by this node's own image, so that a
        caller without rights makes no work for the store."""
        if allowed:
            return await self._change(decide)
        changes = decide(self._metadata.image)
        assert not changes, "what was refused changed something"
        return None

    async def _change(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> KafkaError | None:
        try:
            await self._metadata.change(decide)
        except LogError as error:
            return RequestTimedOutError(f"not confirmed by the store, it may still take effect: {error}")
        return None


def _mutations(context: CallContext, validate_only: bool) -> Mutations:
    """Return what counts the partitions that a request creates or deletes; if it changes nothing, none counts."""
    return Mutations(None if validate_only else context.quota(MUTATION_RATE))


def _may_create(context: CallContext, name: str) -> bool:
    """Return whether the caller may create topics, or this one."""
    return context.may(ResourceType.CLUSTER, CLUSTER_NAME) or context.may(ResourceType.TOPIC, name)


def _require_creation(context: CallContext, name: str) -> None:
    """Raise unless `_may_create`. A name that exists is refused alike (GC-139)."""
    if not context.may(ResourceType.CLUSTER, CLUSTER_NAME):
        context.require(ResourceType.TOPIC, name)


def _require_writer(context: CallContext) -> None:
    """Raise unless the caller may write to some topic, or IDEMPOTENT_WRITE on the cluster. The error names the former:
    the latter alone would let it write nowhere."""
    if context.may_on_any(ResourceType.TOPIC) or context.refusal(ResourceType.CLUSTER, CLUSTER_NAME) is None:
        return
    raise ClusterAuthorizationFailedError(context.may_write_nowhere())


def _require_to_be_shown(context: CallContext, name: str) -> None:
    """Raise unless the caller may learn that there is no topic of this name, with the text for one that exists."""
    if not context.may(ResourceType.TOPIC, name, Operation.DESCRIBE):
        context.require(ResourceType.TOPIC, name)
        context.require(ResourceType.TOPIC, name, Operation.DESCRIBE)


def _created_text(topic: TopicCreated) -> str:
    """Describe a new topic for the log."""
    configs = "".join(f" {name}={value}" for name, value in sorted(topic.configs.items()))
    return f"{topic.name} ({topic_id_text(topic.topic_id)}, {topic.partitions} partitions{configs})"


def _bounded(topics: Sequence[Any]) -> None:
    if len(topics) > CHANGED_TOPICS_MAX:
        raise invalid_argument(f"{len(topics)} topics; at most {CHANGED_TOPICS_MAX} are changed by one request")


def _check_count(name: str, count: int, held: int) -> None:
    if not 1 <= count <= PARTITIONS_MAX:
        raise InvalidPartitionsError(f"topic {name!r}: {count} partitions; expected 1 to {PARTITIONS_MAX}")
    if held + count > CLUSTER_PARTITIONS_MAX:
        raise InvalidPartitionsError(
            f"topic {name!r}: {count} partitions and the {held} of other topics (with deleted ones not yet removed) "
            f"are more than the {CLUSTER_PARTITIONS_MAX} that a cluster may have; ask for at most "
            f"{max(CLUSTER_PARTITIONS_MAX - held, 0)}, or delete topics first"
        )
