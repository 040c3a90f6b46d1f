"""GitHub's signature of a delivery: HMAC-SHA256 of the raw body, keyed with the webhook's secret."""

import hashlib
import hmac

PREFIX = "sha256="


def sign(body: bytes, secret: str) -> str:
    """What belongs into the header ``X-Hub-Signature-256``."""
    return PREFIX + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_signed(body: bytes, header: str, secret: str) -> bool:
    """Whether ``header`` is the signature of ``body``. Takes equally long however much of it is right.

    Raises ValueError without a secret: an empty key is known to everybody.
    """
    if not secret:
        raise ValueError("A signature cannot be checked against an empty secret.")
    return hmac.compare_digest(sign(body, secret).encode(), header.encode(errors="surrogateescape"))
