"""The scenarios of tests/integration/scenarios, run again by a client that speaks Kafka's protocol to the listener.

A scenario that is added there runs here too, unless `left_out` says why not.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

from tests.integration import scenarios
from tests.integration.kafka_listener.again import test_own_clusters, test_own_state
from tests.integration.kafka_listener.again.left_out import LEFT_OUT, again, name_of, scenarios_of
from tests.integration.scenarios import kafka_answers

pytestmark = pytest.mark.asyncio


def _modules() -> list[ModuleType]:
    return [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (scenarios, kafka_answers)
        for found in pkgutil.iter_modules(package.__path__)
        if found.name.startswith("test_")
    ]


MODULES = _modules()
globals().update(again(*(module for module in MODULES if name_of(module) not in LEFT_OUT)))


async def test_what_is_left_out_is_there_and_the_rest_runs() -> None:
    there = {name_of(module) for module in MODULES} | {name for module in MODULES for name, _ in scenarios_of(module)}
    assert LEFT_OUT.keys() <= there
    assert all(reason for reason in LEFT_OUT.values())
    own = (*vars(test_own_clusters).items(), *vars(test_own_state).items())
    elsewhere = {name_of(inspect.getmodule(test)) for name, test in own if name.startswith("test_") and callable(test)}
    assert elsewhere == {name for name, reason in LEFT_OUT.items() if reason.startswith("it has its own cluster")}
