"""The fake cluster's configs: the services' own code, run on the fake's state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

from kip932.api.v1.describe_configs_pb2 import DescribeConfigsResponse
from kip932.api.v1.incremental_alter_configs_pb2 import IncrementalAlterConfigsResponse
from shard_runtime.cluster.config_admin import ConfigAdmin
from shard_runtime.cluster.metadata import Change, ConfigRemoved, ConfigSet, MetadataImage, TopicCreated
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.config.process_settings import load_settings
from tests.support.fake_cluster.state import FakeState


class Configs:
    """DescribeConfigs and IncrementalAlterConfigs of one node."""

    def __init__(self, fake: FakeState, node: int) -> None:
        self._state = fake
        metadata = _Metadata(fake)
        settings = load_settings(fake.flags.get(node))
        effective = EffectiveConfigs(settings, metadata, lambda: node)
        self._admin = ConfigAdmin(cast(MetadataLog, metadata), effective, lambda: node)

    async def describe_configs(self, request: Any, context: Any) -> DescribeConfigsResponse:
        if code := self._state.take_error("describe_configs"):
            response = DescribeConfigsResponse()
            for each in request.resources:
                response.results.add(
                    error_code=code, resource_type=each.resource_type, resource_name=each.resource_name
                )
            return response
        return await self._admin.describe_configs(request, context)

    async def incremental_alter_configs(self, request: Any, context: Any) -> IncrementalAlterConfigsResponse:
        return await self._admin.incremental_alter_configs(request, context)


class _Metadata:
    """The part of a metadata log that configs need."""

    def __init__(self, fake: FakeState) -> None:
        self._fake = fake
        self._versions = itertools.count()

    @property
    def image(self) -> MetadataImage:
        topics = {name: TopicCreated(name, *known) for name, known in self._fake.topics.items()}
        return MetadataImage(version=next(self._versions), topics=topics, configs=self._fake.configs)

    async def change(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> None:
        for change in decide(self.image):
            assert isinstance(change, ConfigSet | ConfigRemoved)
            held = self._fake.configs.setdefault((change.resource_type, change.resource_name), {})
            if isinstance(change, ConfigSet):
                held[change.key] = change.value
            else:
                del held[change.key]
