"""DescribeConfigs and IncrementalAlterConfigs for topics, brokers and groups (CM-23, GC-135…GC-138, GC-145…GC-147)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from kip932.acls import CLUSTER_NAME, Operation, ResourceType
from kip932.api.v1.describe_configs_pb2 import DescribeConfigsRequest, DescribeConfigsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.incremental_alter_configs_pb2 import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kip932.errors import (
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.setting import AnySetting, Setting
from shard_runtime.cluster.metadata import Change, ConfigRemoved, ConfigSet, MetadataImage
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.config.effective_configs import TABLES, EffectiveConfigs
from shard_runtime.config.kafka_configs import (
    BROKER_CONFIGS,
    DLQ_AUTO_CREATE,
    DLQ_PREFIX,
    GROUP_DLQ_TOPIC,
    TOPIC_DLQ_ENABLE,
)
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns, check_configs
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.status import invalid_argument

SOURCE_TOPIC: Final = 1
SOURCE_DYNAMIC_BROKER: Final = 2
SOURCE_DYNAMIC_DEFAULT_BROKER: Final = 3
SOURCE_STATIC_BROKER: Final = 4
SOURCE_DEFAULT: Final = 5
SOURCE_GROUP: Final = 8

OP_SET: Final = 0
OP_DELETE: Final = 1
OP_APPEND: Final = 2
OP_SUBTRACT: Final = 3

RESOURCES_MAX: Final = 1_000
#: How many resources are described before other tasks get a turn.
RESOURCES_SLICE: Final = 50
ConfigChange = ConfigSet | ConfigRemoved
_KINDS: Final = {RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker", RESOURCE_GROUP: "group"}
_RESOURCES: Final = {RESOURCE_TOPIC: ResourceType.TOPIC, RESOURCE_GROUP: ResourceType.GROUP}
_OWN_SOURCE: Final = {RESOURCE_TOPIC: SOURCE_TOPIC, RESOURCE_GROUP: SOURCE_GROUP}


class Found(NamedTuple):
    """One source of a config's value."""

    name: str
    text: str
    source: int


class ConfigAdmin:
    """Serves the two RPCs. `node_id` returns this node's id. `circle` returns why a group's dead letters would come
    back to it from a dead-letter topic; "" when they would not, or this node cannot know (PL-903)."""

    def __init__(
        self,
        metadata: MetadataLog,
        configs: EffectiveConfigs,
        node_id: Callable[[], int],
        circle: Callable[[str, str], str] = lambda group_id, topic: "",
    ) -> None:
        self._metadata = metadata
        self._configs = configs
        self._node_id = node_id
        self._circle = circle

    # ---- describe

    async def describe_configs(self, request: DescribeConfigsRequest, context: CallContext) -> DescribeConfigsResponse:
        """Return the configs of each resource, with the sources of their values."""
        if len(request.resources) > RESOURCES_MAX:
            raise invalid_argument(f"{len(request.resources)} resources; at most {RESOURCES_MAX} in one request")
        check_configs(sum(len(resource.configuration_keys.values) for resource in request.resources))
        response = DescribeConfigsResponse()
        seen: set[tuple[int, str]] = set()
        turns = Turns(RESOURCES_SLICE)
        for resource in request.resources:
            await turns.step()
            result = response.results.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
            try:
                _require_once(seen, resource.resource_type, resource.resource_name)
                _require_right(context, resource.resource_type, resource.resource_name)
                self._require(self._metadata.image, resource.resource_type, resource.resource_name)
            except KafkaError as error:
                result.error_code, result.error_message = ErrorCode.ValueType(error.code), error.message
                continue
            keys = set(resource.configuration_keys.values) if resource.HasField("configuration_keys") else None
            for name, setting in sorted(TABLES[resource.resource_type].items()):
                if keys is None or name in keys:
                    self._describe(result, request, resource, setting)
        return response

    def _describe(
        self,
        result: DescribeConfigsResponse.Result,
        request: DescribeConfigsRequest,
        resource: DescribeConfigsRequest.Resource,
        setting: AnySetting,
    ) -> None:
        chain = list(self._chain(resource.resource_type, resource.resource_name, setting))
        text, source = self._effective_text(resource, setting, chain), chain[0].source
        config = result.configs.add(
            name=setting.name,
            value=None if setting.sensitive else text,
            read_only=resource.resource_type == RESOURCE_BROKER and not setting.dynamic,
            config_source=source,
            is_sensitive=setting.sensitive,
            config_type=setting.type,
            documentation=setting.doc if request.include_documentation else None,
        )
        if request.include_synonyms:
            for found in chain:
                config.synonyms.add(
                    name=found.name, value=None if setting.sensitive else found.text, source=found.source
                )

    def _effective_text(
        self, resource: DescribeConfigsRequest.Resource, setting: AnySetting, chain: Sequence[Found]
    ) -> str:
        if resource.resource_type == RESOURCE_GROUP and chain[0].source != SOURCE_DEFAULT:
            typed = cast(Setting[object], setting)
            return typed.text(self._configs.group(resource.resource_name, typed))
        return chain[0].text

    def _chain(self, resource_type: int, name: str, setting: AnySetting) -> Iterator[Found]:
        """Yield the sources that have a value, the one in force first (GC-135)."""
        if resource_type != RESOURCE_BROKER:
            text = self._configs.set_on(resource_type, name).get(setting.name)
            if text is not None:
                yield Found(setting.name, text, _OWN_SOURCE[resource_type])
            if not setting.synonym:
                yield Found(setting.name, _default(setting), SOURCE_DEFAULT)
                return
            setting, name = BROKER_CONFIGS[setting.synonym], str(self._node_id())
        yield from self._broker_chain(name, setting)

    def _broker_chain(self, name: str, setting: AnySetting) -> Iterator[Found]:
        if setting.dynamic:
            places = ((name, SOURCE_DYNAMIC_BROKER), ("", SOURCE_DYNAMIC_DEFAULT_BROKER))
            for place, source in places[0 if name else 1 :]:
                text = self._configs.set_on(RESOURCE_BROKER, place).get(setting.name)
                if text is not None:
                    yield Found(setting.name, text, source)
        if name and self._configs.settings.given(setting.name):
            yield Found(setting.name, self._configs.settings.text(setting.name), SOURCE_STATIC_BROKER)
        yield Found(setting.name, _default(setting), SOURCE_DEFAULT)

    # ---- alter

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: CallContext
    ) -> IncrementalAlterConfigsResponse:
        """Change the configs of each resource: all changes of a resource, or none."""
        if len(request.resources) > RESOURCES_MAX:
            raise invalid_argument(f"{len(request.resources)} resources; at most {RESOURCES_MAX} in one request")
        check_configs(sum(len(resource.configs) for resource in request.resources))
        times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        response = IncrementalAlterConfigsResponse()
        changed: list[str] = []
        for resource in request.resources:
            result = response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise InvalidRequestError("a request may name each resource once")
                _require_right(context, resource.resource_type, resource.resource_name)
                changes = await self._alter(resource, request.validate_only, context)
            except KafkaError as error:
                result.error_code, result.error_message = ErrorCode.ValueType(error.code), error.message
            else:
                changed += [_change_text(change) for change in changes]
        log_changes("configs_altered", context, changed)
        return response

    async def _alter(
        self, resource: IncrementalAlterConfigsRequest.Resource, validate_only: bool, context: CallContext
    ) -> list[ConfigChange]:
        """Change the configs of a resource and return the changes stored. Raises KafkaError."""
        changes: list[ConfigChange] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            found = self._changes(image, resource, context)
            changes[:] = [] if validate_only else found
            return list(changes)

        try:
            await self._metadata.change(decide)
        except LogError as error:
            raise RequestTimedOutError(f"not confirmed by the store, it may still take effect: {error}") from error
        return changes

    def _changes(
        self, image: MetadataImage, resource: IncrementalAlterConfigsRequest.Resource, context: CallContext
    ) -> list[ConfigChange]:
        kind, name = resource.resource_type, resource.resource_name
        if kind == RESOURCE_GROUP and not name:
            raise InvalidRequestError("Default group resources are not allowed.")
        self._require(image, kind, name)
        _check_names(kind, resource)
        stored = image.config(kind, name)
        wanted = dict(stored)
        for config in resource.configs:
            if config.name in TABLES[kind]:  # otherwise it is a DELETE of an unknown config: a no-op (GC-136)
                _apply(TABLES[kind][config.name], wanted, config)
        changed = frozenset(key for key, value in wanted.items() if stored.get(key) != value)
        asked = frozenset(config.name for config in resource.configs if config.config_operation != OP_DELETE)
        self._configs.check(kind, wanted, asked | changed)
        if kind == RESOURCE_GROUP and GROUP_DLQ_TOPIC.name in asked | changed:
            topic = wanted.get(GROUP_DLQ_TOPIC.name, "")
            created = topic not in image.topics and self._configs.broker(DLQ_AUTO_CREATE)
            _require_dead_letters(context, topic, created=created)
            self._check_dead_letter_topic(image, name, topic)
        return [
            *(ConfigSet(kind, name, key, wanted[key]) for key in sorted(changed)),
            *(ConfigRemoved(kind, name, key) for key in sorted(stored.keys() - wanted.keys())),
        ]

    def _check_dead_letter_topic(self, image: MetadataImage, group_id: str, topic: str) -> None:
        """Raise InvalidConfigError for a topic that cannot be the group's dead-letter topic (PL-903)."""
        if not topic:
            return
        prefix, config = self._configs.broker(DLQ_PREFIX), GROUP_DLQ_TOPIC.name
        if not topic.startswith(prefix):
            raise InvalidConfigError(
                f"Invalid value {topic!r} for {config}: it must begin with {prefix!r}, the value of {DLQ_PREFIX.name} "
                "of the brokers; choose another topic, or change that"
            )
        if topic in image.topics and not self._configs.topic(topic, TOPIC_DLQ_ENABLE):
            raise InvalidConfigError(
                f"Invalid value {topic!r} for {config}: the topic is not enabled as a dead-letter topic; set "
                f"{TOPIC_DLQ_ENABLE.name}=true on it first"
            )
        circle = self._circle(group_id, topic)
        if circle:
            raise InvalidConfigError(
                f"Invalid value {topic!r} for {config}: {circle}; choose a topic that none of them is subscribed to"
            )

    def _require(self, image: MetadataImage, kind: int, name: str) -> None:
        """Raise unless the resource exists and this node may answer for it."""
        if kind not in TABLES:
            raise InvalidRequestError(f"resource type {kind} has no configs; expected 2 topic, 4 broker or 32 group")
        if kind == RESOURCE_TOPIC and name not in image.topics:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
        if kind == RESOURCE_GROUP and not name:
            raise InvalidRequestError("Group name must not be empty")
        if kind == RESOURCE_BROKER and name not in {"", str(self._node_id())}:
            raise InvalidRequestError(
                f"Unexpected broker id, expected {self._node_id()} or empty string, but received {name}"
            )


def _require_right(context: CallContext, kind: int, name: str) -> None:
    """Raise unless the caller has the right to the configs that its RPC needs; a broker's are the cluster's
    (GC-139)."""
    if kind == RESOURCE_BROKER:
        context.require(ResourceType.CLUSTER, CLUSTER_NAME)
    elif kind in _RESOURCES:
        context.require(_RESOURCES[kind], name)


def _require_dead_letters(context: CallContext, topic: str, *, created: bool) -> None:
    """Raise unless the caller may itself do to the topic what a leader does with dead letters: write to it and, if it
    is `created` by the first one, create it (CM-61 (g))."""
    if not topic:
        return
    context.require(ResourceType.TOPIC, topic, Operation.WRITE)
    if created and not context.may(ResourceType.CLUSTER, CLUSTER_NAME, Operation.CREATE):
        context.require(ResourceType.TOPIC, topic, Operation.CREATE)


def _change_text(change: ConfigChange) -> str:
    """Describe a change for the log; values of sensitive configs are left out (CM-61)."""
    where = f"{_KINDS[change.resource_type]} {change.resource_name or '(all)'} {change.key}"
    if isinstance(change, ConfigRemoved):
        return f"{where} deleted"
    setting = TABLES[change.resource_type].get(change.key)
    return f"{where}=***" if setting is None or setting.sensitive else f"{where}={change.value}"


def _require_once(seen: set[tuple[int, str]], kind: int, name: str) -> None:
    """Raise InvalidRequestError for a resource named twice, so that a short request cannot have a long response
    (CM-91)."""
    if (kind, name) in seen:
        raise InvalidRequestError("a request may name each resource once")
    seen.add((kind, name))


def _default(setting: AnySetting) -> str:
    typed = cast(Setting[object], setting)
    return typed.text(typed.default)


def _check_names(kind: int, resource: IncrementalAlterConfigsRequest.Resource) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise InvalidRequestError(f"configs are named twice in the request: {twice}")
    label = _KINDS[kind]
    nulls = [c.name for c in resource.configs if c.config_operation != OP_DELETE and not c.HasField("value")]
    if nulls:
        raise InvalidRequestError(f"Null value not supported for {label} configs: {','.join(nulls)}")
    for config in resource.configs:
        if config.name not in TABLES[kind] and config.config_operation != OP_DELETE:
            raise InvalidConfigError(f"Unknown {label} config name: {config.name}")
    fixed = [name for name in names if name in TABLES[kind] and not TABLES[kind][name].dynamic]
    if fixed:
        raise InvalidRequestError(f"these configs need a restart, they cannot be altered: {', '.join(fixed)}")


def _apply(
    setting: AnySetting, wanted: dict[str, str], config: IncrementalAlterConfigsRequest.Config
) -> Mapping[str, str]:
    if config.config_operation == OP_DELETE:
        wanted.pop(setting.name, None)
    elif config.config_operation == OP_SET:
        wanted[setting.name] = config.value
    elif config.config_operation not in {OP_APPEND, OP_SUBTRACT}:
        raise InvalidRequestError(f"config operation {config.config_operation} is not known; expected 0, 1, 2 or 3")
    else:  # APPEND and SUBTRACT are for lists; every list config needs a restart, so none gets this far
        raise InvalidConfigError(f"{setting.name} is not a list; it can be set or deleted only")
    return wanted
