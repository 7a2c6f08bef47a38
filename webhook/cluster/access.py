"""Asking the API server what RBAC lets somebody do (authorization.k8s.io/v1, SubjectAccessReview)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from webhook.cluster.api import Transport, Unreachable
from webhook.errors import Unavailable
from webhook.facts import AccessKey

_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Answer(msgspec.Struct):
    status: _Status


_decode: Final = msgspec.json.Decoder(_Answer).decode


async def allowed(transport: Transport, key: AccessKey, seconds: float) -> bool | Unavailable:
    """Whether somebody may do something; `Unavailable` where that could not be learnt in so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            status, body = await transport.post(_PATH, _review(key))
    except Unreachable as error:
        return Unavailable(error.why)
    except TimeoutError:
        return Unavailable(f"the API server did not answer within {seconds * 1000:.0f} ms")
    if status == 403:
        return Unavailable("the API server refused with 403: grant create on subjectaccessreviews.authorization.k8s.io")
    if status not in (200, 201):
        return Unavailable(f"the API server answered {status} to create subjectaccessreviews")
    try:
        return _decode(body).status.allowed
    except msgspec.DecodeError:
        return Unavailable("the API server's SubjectAccessReview can't be decoded")


def _review(key: AccessKey) -> dict[str, Any]:
    attributes = {"verb": key.verb, "group": key.group, "resource": key.resource}
    optional = {"namespace": key.namespace, "name": key.name}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": key.user,
            "groups": list(key.groups),
            "uid": key.uid,
            "extra": {name: list(values) for name, values in key.extra},
            "resourceAttributes": attributes | {name: value for name, value in optional.items() if value},
        },
    }
