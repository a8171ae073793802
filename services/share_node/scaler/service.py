"""KEDA's external scaler: reports, for each ScaledObject, whether a share group has work, and how much."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

from kip932.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from kip932.keda import external_scaler_pb2 as keda
from kip932.rpc.transport import TransportStatus
from shard_runtime.rpc.status import RpcFailureError, invalid_argument
from share_node.scaler.demand import AGE, PartitionBacklog, Trigger, TriggerError, trigger_of, values

#: KEDA's requests time out after seconds; a later response is useless.
READ_WAIT_S: Final = 5.0


class Backlog(Protocol):
    """The source of the numbers."""

    async def read(self, trigger: Trigger, *, ages: bool) -> list[PartitionBacklog]:
        """Return one entry for each partition with a known lag. Raises KafkaError, which
        becomes PERMISSION_DENIED if the scaler's principal lacks a right, else UNAVAILABLE."""
        ...


class ExternalScaler:
    """The RPCs of `externalscaler.ExternalScaler`. When the cluster does not respond, they return UNAVAILABLE: KEDA
    then keeps the number of workers, or uses the ScaledObject's `fallback`, instead of scaling to zero."""

    def __init__(self, backlog: Backlog, now_ms: Callable[[], int]) -> None:
        self._backlog = backlog
        self._now_ms = now_ms

    async def is_active(self, request: keda.ScaledObjectRef, context: object = None) -> keda.IsActiveResponse:
        """Return whether any record could be worked on now. Raises RpcFailureError."""
        del context
        backlog = await self._read(_trigger(request), ages=False)
        return keda.IsActiveResponse(result=any(partition.lag > 0 for partition in backlog))

    async def get_metric_spec(
        self, request: keda.ScaledObjectRef, context: object = None
    ) -> keda.GetMetricSpecResponse:
        """Return the metrics that the trigger has targets for. Raises RpcFailureError."""
        del context
        response = keda.GetMetricSpecResponse()
        for name, target in _trigger(request).targets.items():
            response.metric_specs.add(metric_name=name, target_size=math.ceil(target), target_size_float=target)
        return response

    async def get_metrics(self, request: keda.GetMetricsRequest, context: object = None) -> keda.GetMetricsResponse:
        """Return the current value of one metric. Raises RpcFailureError."""
        del context
        trigger = _trigger(request.scaled_object_ref)
        name = request.metric_name
        if name not in trigger.targets:
            raise invalid_argument(
                f"metric {name!r} is none of {', '.join(trigger.targets)}, which the trigger asks for"
            )
        value = values(await self._read(trigger, ages=name == AGE), self._now_ms())[name]
        response = keda.GetMetricsResponse()
        response.metric_values.add(metric_name=name, metric_value=math.ceil(value), metric_value_float=value)
        return response

    async def _read(self, trigger: Trigger, *, ages: bool) -> list[PartitionBacklog]:
        try:
            async with asyncio.timeout(READ_WAIT_S):
                return await self._backlog.read(trigger, ages=ages)
        except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
            raise _unread(TransportStatus.PERMISSION_DENIED, trigger, error.message) from error
        except KafkaError as error:
            raise _unread(TransportStatus.UNAVAILABLE, trigger, error.message) from error
        except TimeoutError as error:
            why = f"the cluster gave no answer within {READ_WAIT_S:.0f} s"
            raise _unread(TransportStatus.UNAVAILABLE, trigger, why) from error


def _unread(status: TransportStatus, trigger: Trigger, why: str) -> RpcFailureError:
    return RpcFailureError(status, f"the backlog of group {trigger.group!r} cannot be read: {why}")


def _trigger(request: keda.ScaledObjectRef) -> Trigger:
    try:
        return trigger_of(request.scaler_metadata)
    except TriggerError as error:
        raise invalid_argument(f"ScaledObject {request.namespace}/{request.name}: {error}") from error
