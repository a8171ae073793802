"""What `dlq redrive` does with the trace contexts of dead letters."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanKind

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, store
from tests.support.telemetry import linked, telemetry
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ
from .sent import produced

SPAN = 0xB7AD6B7169203331
CONTEXT = [
    ("traceparent", f"00-0af7651916cd43dd8448eb211c80319c-{SPAN:016x}-01".encode()),
    ("tracestate", b"rojo=1"),
]


@pytest.mark.rule("CL-176")
@pytest.mark.parametrize("is_set_up", [True, False], ids=["traced", "not traced"])
def test_a_fresh_record_keeps_the_letters_context_and_its_span_is_linked_to_it(
    queue: FakeCluster, is_set_up: bool
) -> None:
    store(queue, "orders", *((None, b"job", CONTEXT, 1) for _ in range(3)))
    store(queue, DLQ, copy_of(0, headers=[("a", b"1"), *CONTEXT]), copy_of(1), bare(2))
    end = queue.log("orders").end
    with telemetry(set_up=is_set_up) as found:
        result = sharegroups("dlq", "redrive", "--topic", DLQ, "--all")
        assert result.exit_code == 0, result.output
        fresh = produced(queue, since=end)
        kept = [[pair for pair in one.headers if pair in CONTEXT] for one in fresh]
        assert kept == [CONTEXT, [], CONTEXT]
        assert not any(name == "traceparent" for name, _ in fresh[1].headers), "the letter has no context to keep"
        spans = found.spans()
        assert [(span.name, span.kind, linked(span)) for span in spans] == (
            [("send orders", SpanKind.PRODUCER, ids) for ids in ({SPAN}, set(), {SPAN})] if is_set_up else []
        )
