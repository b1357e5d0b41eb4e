"""Tokens as an API server writes them, without a signature that holds."""

import json
from base64 import urlsafe_b64encode


def a_token(subject, *audiences, by="signature"):
    """Return a token that says of itself whose it is and for whom."""
    claims = json.dumps({"sub": subject, "aud": audiences}).encode()
    return f"e30.{urlsafe_b64encode(claims).decode().rstrip('=')}.{by}"
