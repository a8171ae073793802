"""Asks Sentinels which server is the store's current master."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import redis

_ASK_S: Final = 2.0
_WAIT_S: Final = 20.0


def master_address(sentinels: Sequence[tuple[str, int]], service: str) -> tuple[str, int]:
    """Return host and port of the master, from the first Sentinel that responds. Raises AssertionError if none does."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        for host, port in sentinels:
            try:
                with redis.Redis(
                    host, port, socket_timeout=_ASK_S, socket_connect_timeout=_ASK_S, decode_responses=True
                ) as client:
                    found = client.sentinel_get_master_addr_by_name(service)
            except redis.RedisError:
                continue
            if found is not None:
                named_host, named_port = found
                return str(named_host), int(named_port)
        time.sleep(0.1)
    raise AssertionError(f"no Sentinel of {sentinels} named a master of {service} within {_WAIT_S:.0f} s")
