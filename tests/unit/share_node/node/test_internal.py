"""The addresses of the services between nodes, and when an older build may still reach them on the client port."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.record_log.redis.cluster_store import _pack, _unpack
from shard_runtime.rpc.server import ListenError
from share_node.node.internal import OLDER_SERVED_MS, OlderNodes, internal_address, internal_host
from share_node.node.process_store import refuse_unusable
from share_node.node.up import UpOptions, _child_arguments, _flags

NEW = NodeRecord(1, 7, "new", "new:7932", frozenset({"partition_leader"}), "", "live", "new:7933")
#: A node record as a build without internal addresses writes it.
OLD_TEXT = json.dumps(
    {"incarnation": "8", "name": "old", "address": "old:1", "roles": ["partition_leader"], "rack": "", "state": "live"}
)
OLD = _unpack(2, OLD_TEXT.encode())


@pytest.mark.rule("CM-80")
@pytest.mark.parametrize(
    ("flags", "host", "reported"),
    [
        ({"listen.host": "10.0.0.1"}, "10.0.0.1", "10.0.0.1:5"),
        ({"listen.host": "0.0.0.0", "advertised.host": "pod"}, "0.0.0.0", "pod:5"),
        ({"listen.host": "0.0.0.0", "advertised.host": "pod", "internal.listen.host": "10.0.0.1"}, "10.0.0.1",
         "10.0.0.1:5"),
        ({"internal.listen.host": "0.0.0.0", "internal.advertised.host": "in"}, "0.0.0.0", "in:5"),
        ({"internal.advertised.port": "9", "listen.host": "h"}, "h", "h:9"),
    ],
)  # fmt: skip
def test_where_nodes_call(flags: dict[str, str], host: str, reported: str) -> None:
    settings = load_settings(flags)
    assert (internal_host(settings), internal_address(settings, 5)) == (host, reported)


@pytest.mark.rule("CM-80", "CM-1")
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"internal.advertised.host": "0.0.0.0"}, "internal.advertised.host is 0.0.0.0"),
        ({"listen.port": "7932", "internal.listen.port": "7932"}, "are both 7932"),
        ({"internal.listen.host": "0.0.0.0", "internal.advertised.host": "h"}, "without TLS"),
    ],
)
def test_what_cannot_be_called_is_refused(flags: dict[str, str], named: str) -> None:
    with pytest.raises(ListenError, match=named):
        refuse_unusable(load_settings({"store.url": "", **flags}))


@pytest.mark.rule("CM-80")
def test_up_listens_for_nodes_on_loopback_only_and_each_process_on_a_port_of_its_own(tmp_path: object) -> None:
    options = UpOptions(data=tmp_path, host="0.0.0.0", port=7932, settings={"internal.listen.port": "7933"})  # type: ignore[arg-type]
    flags = _flags(options, tmp_path, "redis://h")  # type: ignore[arg-type]
    assert flags["internal.listen.host"] == "127.0.0.1"
    assert "internal.listen.port=7933" in _child_arguments(flags, "group_coordinator", keeps_port=True)
    assert "internal.listen.port=0" in _child_arguments(flags, "share_coordinator", keeps_port=False)


@pytest.mark.rule("CM-81")
def test_a_node_of_an_older_build_is_called_where_it_serves_everything() -> None:
    assert (NEW.peer_address, OLD.peer_address) == ("new:7933", "old:1")
    assert _unpack(1, _pack(NEW).encode()) == NEW
    assert json.loads(OLD_TEXT).items() <= json.loads(_pack(OLD)).items(), "what an older build reads is all there"


@pytest.mark.rule("CM-81")
def test_the_client_port_serves_nodes_only_while_an_older_build_is_about() -> None:
    nodes: list[NodeRecord] = []
    now_ms = 5_000
    older = OlderNodes(lambda: nodes, lambda: now_ms)
    seen = []
    with capture_logs() as lines:
        for now in ([], [NEW], [NEW, OLD], [OLD], [NEW]):
            nodes[:] = now
            seen.append(older())
    assert seen == [False, False, True, True, True], "in a rollout that is taken back, one comes before it is listed"
    now_ms += OLDER_SERVED_MS
    assert not older()
    assert [line["nodes"] for line in lines if line["log_level"] == "warning"] == [["old"]], "once"
