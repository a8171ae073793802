"""Generates the part of docs/reference/protocol.md that lists the RPCs, from their table."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

from shard_runtime.rpc.table import RPCS, Effect, Port, RequestSize, Rpc
from tools.page_parts import page_with

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "protocol.md"
_PORTS: Final = {
    Port.CLIENTS: "`listen.port`",
    Port.NODES: "`internal.listen.port`",
    Port.SCALER: "the port of `sharegroups scaler`",
}
_HEAD: Final = ("| RPC | Served at | Needs | Effect | Largest request |", "|---|---|---|---|---|")
_EFFECTS: Final = {Effect.READS: "reads", Effect.WRITES: "writes"}
_SIZES: Final = {
    RequestSize.LISTS: "1 MiB",
    RequestSize.STATE_BATCHES: "8 MiB",
    RequestSize.RECORD_BATCHES: "`rpc.request.max.bytes`",
}


def protocol_page() -> str:
    """Return docs/reference/protocol.md with its list of RPCs regenerated."""
    return page_with(PAGE, {"RPCs": rpcs_part})


def rpcs_part() -> str:
    """Return a table for each service, with a row for each of its RPCs."""
    lines: list[str] = []
    for service, rows in groupby(RPCS.values(), key=lambda row: row.service):
        lines += [
            f"### {service}",
            "",
            "| RPC | Served at | Needs | Effect | Largest request |",
            "|---|---|---|---|---|",
        ]
        lines += [*map(_line, rows), ""]
    return "\n".join(lines)


def _line(row: Rpc) -> str:
    served = ", ".join(_PORTS[port] for port in row.ports) or "no port"
    if row.unserved:
        served += f": {row.unserved}"
    needs = ", ".join(f"{operation.name} on {resource.name}" for resource, operation in row.needs.items())
    return f"| `{row.name}` | {served} | {needs} | {_EFFECTS[row.effect]} | {_SIZES[row.request]} |"
