"""A client's side of SCRAM, written from RFC 5802."""

from __future__ import annotations

import base64
import hashlib
import hmac

from kip932.scram import Mechanism


def proof(mechanism: Mechanism, password: str, first: str, server_first: str) -> tuple[str, str]:
    """Return a client's last message, and the answer that it expects."""
    terms = dict(part.split("=", 1) for part in server_first.split(","))
    salt, count = base64.b64decode(terms["s"]), int(terms["i"])
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, count)

    def mac(key: bytes, text: str) -> bytes:
        return hmac.digest(key, text.encode(), mechanism.hash_name)

    key = mac(salted, "Client Key")
    channel = base64.b64encode(b"n,,").decode()
    without = f"c={channel},r={terms['r']}"
    message = f"{first},{server_first},{without}"
    signature = mac(hashlib.new(mechanism.hash_name, key).digest(), message)
    proved = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    expected = base64.b64encode(mac(mac(salted, "Server Key"), message)).decode()
    return f"{without},p={proved}", f"v={expected}"
