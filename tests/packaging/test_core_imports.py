"""Cores are pure. import-linter only forbids listed imports; this test lists all that a core and the vocabulary may
import."""

from pathlib import Path

import pytest

from tests.packaging.source_imports import ROOT, imports, modules

# The pure parts of the standard library: they compute, and do not wait, read the clock or draw random numbers.
PURE = frozenset(
    {
        "__future__", "abc", "array", "base64", "binascii", "bisect", "collections", "contextlib", "copy",
        "dataclasses", "enum", "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools", "math", "operator",
        "re", "shlex", "string", "stringprep", "struct", "types", "typing", "unicodedata", "zlib",
    }
)  # fmt: skip
# Pure modules that cores may import: the vocabulary, and the shape of a shard, which a core implements.
VOCABULARY = frozenset(
    {
        "kip932.acls", "kip932.errors", "kip932.failures", "kip932.handshakes", "kip932.ids", "kip932.printable",
        "kip932.remedies", "kip932.scram", "kip932.state_batches", "kip932.state_values",
        "shard_runtime.config.group_config", "shard_runtime.hosting.quarantine", "shard_runtime.hosting.shard",
    }
)  # fmt: skip
# Further pure modules that the runtime's own pure ones may import; they are held to the same list.
RUNTIME_WORDS = frozenset(
    {
        "kip932.acls", "kip932.setting", "shard_runtime.config.group_extensions", "shard_runtime.config.kafka_configs",
        "shard_runtime.ownership.lease_terms", "shard_runtime.ownership.placement",
        "shard_runtime.ownership.shard_claims", "shard_runtime.record_log.cluster_store",
        "shard_runtime.record_log.protocol", "shard_runtime.record_log.settlements",
        "shard_runtime.record_log.transaction_store",
    }
)  # fmt: skip

# The modules of the services that may see generated messages and their runtime: the edges.
MESSAGE_EDGES = frozenset({"service", "codec", "transport"})
MESSAGE_PACKAGES = (
    "group_coordinator.leader_end_offsets",
    "group_coordinator.member_removals",
    "kafka_listener.calls",
    "kafka_listener.ports",
    "kafka_listener.requests",
    "kip932.rpc",
    "partition_leader.dead_letters.carriers",
    "partition_leader.sessions.member_reports",
    "partition_leader.topic_rpc",
    "shard_runtime.cluster",
    "shard_runtime.rpc",
    "share_node.scaler.backlog",
    "share_node.state",
    "share_persister",
    "transaction_coordinator.markers",
)
# A composition root names the services that its process serves; it uses their descriptors, but no messages.
SERVICE_NAMERS = frozenset({"share_node.node.roles"})
STORE_PACKAGE = "shard_runtime.record_log.redis"
# The pipeline is outside the services and reads streams with one module of its own.
STORE_READER = "share_metrics.reader.store"


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def is_edge(module: str) -> bool:
    """Return whether a module translates messages: `codec`, `error_codec`, a folder `codec`, …"""
    edges = (tuple(f"{edge}_" for edge in MESSAGE_EDGES), tuple(f"_{edge}" for edge in MESSAGE_EDGES))
    return within(module, *MESSAGE_PACKAGES) or any(
        part in MESSAGE_EDGES or part.startswith(edges[0]) or part.endswith(edges[1]) for part in module.split(".")[1:]
    )


def core_of(module: str) -> str:
    """Return the core that a module belongs to, "" for none: `x.core`, or `x.y.core` where x has several packages."""
    parts = module.split(".")
    ends = [index for index, part in enumerate(parts, start=1) if part == "core"]
    return ".".join(parts[: ends[0]]) if ends else ""


CORES = frozenset(core for name, _ in modules() if (core := core_of(name)))


def is_pure(module: str) -> bool:
    return bool(core_of(module)) or module in VOCABULARY | RUNTIME_WORDS


def allowed(module: str) -> frozenset[str]:
    """Return what a pure module may import besides the pure parts of the standard library. This includes the cores of
    its service, in the order of the layers (pyproject.toml)."""
    runtime = RUNTIME_WORDS if within(module, "shard_runtime") else frozenset[str]()
    service = module.partition(".")[0]
    cores = {core for core in CORES if within(core, service)} if core_of(module) else {module}
    return VOCABULARY | runtime | cores


PURE_MODULES = [(name, path) for name, path in modules() if is_pure(name)]


def test_the_vocabulary_is_among_the_modules_held() -> None:
    assert {"kip932.errors", "kip932.ids"} <= {name for name, _ in PURE_MODULES}


@pytest.mark.parametrize(("module", "path"), PURE_MODULES, ids=[name for name, _ in PURE_MODULES])
def test_a_core_imports_pure_things_only(module: str, path: Path) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports(module, path)
        if name.split(".")[0] not in PURE and not within(name, *allowed(module))
    ]
    assert wrong == [], f"it may import {', '.join(sorted(PURE | allowed(module)))}"


def test_in_services_only_edges_see_messages() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in modules()
        if (ROOT / "services") in path.parents and not is_edge(module)
        for line, name in imports(module, path)
        if within(name, "google.protobuf") or within(name, "kip932.api", "kip932.internal", "kip932.records")
        if not (module in SERVICE_NAMERS and name.endswith("_service_pb2"))
    ]
    assert wrong == [], (
        f"messages are translated at the edges: {', '.join(sorted(MESSAGE_EDGES))}, {', '.join(MESSAGE_PACKAGES)}"
    )


def test_only_one_package_sees_the_store() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in modules()
        if not within(module, STORE_PACKAGE, STORE_READER)
        for line, name in imports(module, path)
        if within(name, "redis", "hiredis", "valkey")
    ]
    assert wrong == [], f"only {STORE_PACKAGE} speaks with the store"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import os.path", "os.path"),
        ("from kip932 import ids", "kip932.ids"),
        ("from . import state", "svc.core.state"),
        ("from .state import State", "svc.core.state.State"),
        ("from ..codec import encode", "svc.codec.encode"),
    ],
)
def test_imports_are_read_as_python_reads_them(tmp_path: Path, line: str, expected: str) -> None:
    (tmp_path / "shard.py").write_text(line)
    assert list(imports("svc.core.shard", tmp_path / "shard.py")) == [(1, expected)]
