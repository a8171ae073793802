"""The server-side functions: names, versions, sources and digests. They are our only code in the store.

A function is never changed once released. New behaviour is a new version under a new name, so that processes of two
releases can share a store. Each function touches one hash tag and is called by digest (EVALSHA). `renew_v1` takes many
owner records at once, which only a store without cluster mode allows (CM-3).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final


@dataclass(frozen=True, slots=True)
class Script:
    """One server-side function: its name (with version), its Lua source, and the digest by which it is called."""

    name: str
    source: str
    digest: str


def _load(name: str) -> Script:
    source = resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


CLAIM: Final = _load("claim_v2")
RENEW: Final = _load("renew_v1")
RELEASE: Final = _load("release_v1")
REPLAY_FROM: Final = _load("replay_from_v1")
STREAM_TIP: Final = _load("stream_tip_v1")
LOG_INDEX: Final = _load("log_index_v3")
NODE_REGISTER: Final = _load("node_register_v1")
NODE_RENEW: Final = _load("node_renew_v2")
METADATA_APPEND: Final = _load("metadata_append_v3")
TRANSACTION_CHANGE: Final = _load("transaction_change_v1")
TRANSACTION_READ: Final = _load("transaction_look_v1")

ALL: Final = (
    CLAIM, RENEW, RELEASE, REPLAY_FROM, STREAM_TIP, LOG_INDEX, NODE_REGISTER, NODE_RENEW, METADATA_APPEND,
    TRANSACTION_CHANGE, TRANSACTION_READ,
)  # fmt: skip
