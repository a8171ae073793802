"""An issuer of tokens (JWT), with the file of keys by which a node checks them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

_AUDIENCE: Final = "sharegroups"
_ISSUER: Final = "https://issuer.example"
_KEY_ID: Final = "one"


class Issuer:
    """Makes tokens. `folder`: where the file of keys is written."""

    def __init__(self, folder: Path) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._keys = folder / "keys.json"
        key = json.loads(ECAlgorithm.to_jwk(self._private.public_key()))
        self._keys.write_text(json.dumps({"keys": [key | {"kid": _KEY_ID}]}))

    def settings(self) -> dict[str, str]:
        """Return a node's settings for accepting its tokens."""
        return {
            "sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            "sasl.oauthbearer.expected.issuer": _ISSUER,
        }

    def token(self, user: str, lasts_s: float = 3_600) -> str:
        """Return a token for a user."""
        claims = {"sub": user, "aud": _AUDIENCE, "iss": _ISSUER, "exp": time.time() + lasts_s}
        return jwt.encode(claims, self._private, "ES256", headers={"kid": _KEY_ID})
