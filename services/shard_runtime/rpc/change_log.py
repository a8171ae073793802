"""Logs what clients change: one line per request, with the changes and the caller (CM-164)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

log = structlog.get_logger(__name__)

#: How many changes of one request are listed, and how many characters of each; the rest are only counted.
NAMED_MAX: Final = 20
TEXT_MAX: Final = 300


def log_changes(event: str, caller: object, changed: Sequence[str], **fields: str) -> None:
    """Log changes that are stored; nothing when there are none. `caller`: the call's context, or None."""
    if not changed:
        return
    named = [text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…" for text in changed[:NAMED_MAX]]
    if len(changed) > NAMED_MAX:
        named.append(f"and {len(changed) - NAMED_MAX} more")
    principal = getattr(caller, "principal", None)
    log.info(
        event,
        **fields,
        changed=", ".join(named),
        changes=len(changed),
        peer=getattr(caller, "peer", ""),
        client_id=getattr(caller, "client_id", ""),
        **({} if principal is None else {"principal": principal}),
    )
