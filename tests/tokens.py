"""Service account tokens as the API server signs them (pkg/serviceaccount of Kubernetes), with keys of a test's own."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any, TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

Key: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

ISSUER = "https://kubernetes.default.svc"
_DIGESTS = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
_OF_EC = {256: "ES256", 384: "ES384", 521: "ES512"}


def encode(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _number(value: int, size: int = 0) -> str:
    return encode(value.to_bytes(size or (value.bit_length() + 7) // 8))


def algorithm(key: Key) -> str:
    return "RS256" if isinstance(key, rsa.RSAPrivateKey) else _OF_EC[key.key_size]


def sign(key: Key, claims: dict[str, Any], kid: Any = "k1", **header: Any) -> str:
    """A token whose header may differ from what the key's would be."""
    parts = ({"alg": algorithm(key), "kid": kid, **header}, claims)
    content = ".".join(encode(json.dumps(part).encode()) for part in parts)
    if isinstance(key, rsa.RSAPrivateKey):
        return f"{content}.{encode(key.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    pair = decode_dss_signature(key.sign(content.encode(), ec.ECDSA(_DIGESTS[key.key_size])))
    size = (key.key_size + 7) // 8
    return f"{content}.{encode(b''.join(half.to_bytes(size) for half in pair))}"


def key_set(**keys: Key) -> dict[str, Any]:
    """The JSON Web Key Set of keys by their IDs."""
    return {"keys": [{"kid": kid, "use": "sig", "alg": algorithm(key)} | _public(key) for kid, key in keys.items()]}


def _public(key: Key) -> dict[str, str]:
    if isinstance(key, rsa.RSAPrivateKey):
        of_rsa = key.public_key().public_numbers()
        return {"kty": "RSA", "n": _number(of_rsa.n), "e": _number(of_rsa.e)}
    of_curve, size = key.public_key().public_numbers(), (key.key_size + 7) // 8
    place = {"x": _number(of_curve.x, size), "y": _number(of_curve.y, size)}
    return {"kty": "EC", "crv": f"P-{key.key_size}", **place}


def claims(
    audience: Any,
    configuration: str = "kubevirt-webhook",
    kind: str = "mutatingwebhookconfiguration",
    /,
    *,
    now: float,
    groups: tuple[str, ...] = ("*",),
    **changed: Any,
) -> dict[str, Any]:
    """Those of a token that is bound to a webhook configuration, issued a minute ago for ten."""
    own = {
        "namespace": "kube-system",
        "serviceaccount": {"name": "webhook-auth", "uid": "sa-1"},
        kind: {"name": configuration, "uid": "c-1"},
        "attestations": {"admissionReviewAPIGroups": list(groups)},
    }
    times = {"iat": now - 60, "nbf": now - 60, "exp": now + 540}
    sub = "system:serviceaccount:kube-system:webhook-auth"
    return {"iss": ISSUER, "sub": sub, "aud": audience, **times, "kubernetes.io": own, **changed}
