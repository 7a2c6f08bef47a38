"""Questions to the API server: the user of a token, and what RBAC lets a user do (TokenReview, SubjectAccessReview)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.facts import AccessKey, TokenKey
from webhook.k8s.client.api import Forbidden, Transport, await_answer, decode
from webhook.k8s.paths import object_path

_ACCESS: Final = ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview")
_TOKENS: Final = ("authentication.k8s.io", "tokenreviews", "TokenReview")


class _Status(msgspec.Struct):
    allowed: bool = False
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _Review(msgspec.Struct):
    status: _Status


async def is_allowed(transport: Transport, key: AccessKey, seconds: float) -> bool | Unavailable:
    """Whether RBAC lets a user do something, by a SubjectAccessReview; `Unavailable` without an answer in time."""
    answer = await _create_review(transport, _ACCESS, _access(key), seconds)
    return answer if isinstance(answer, Unavailable) else answer.allowed


async def authenticate(transport: Transport, key: TokenKey, seconds: float) -> UserInfo | Unavailable | None:
    """The user of a bearer token, by a TokenReview; None where the API server does not accept the token.

    A token whose user has no name is not accepted either, since RBAC cannot evaluate it.
    """
    answer = await _create_review(transport, _TOKENS, {"token": key.token}, seconds)
    if isinstance(answer, Unavailable):
        return answer
    return answer.user if answer.authenticated and answer.user.username else None


async def _create_review(
    transport: Transport, resource: tuple[str, str, str], spec: dict[str, Any], seconds: float
) -> _Status | Unavailable:
    """A review that is created is answered at once, and kept nowhere."""
    group, plural, kind = resource
    review = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    answer = await await_answer(transport.request("POST", object_path(f"{group}/v1", plural), body=review), seconds)
    if isinstance(answer, Unavailable):
        return answer
    status, body = answer
    if status == 403:
        return Forbidden(f"the API server denied the request (403): grant create on {plural}.{group}")
    if status not in (200, 201):
        return Unavailable(f"the API server answered {status} to create {plural}")
    decoded = decode(body, _Review, kind)
    return decoded if isinstance(decoded, Unavailable) else decoded.status


def _access(key: AccessKey) -> dict[str, Any]:
    attributes = {"verb": key.verb, "group": key.group, "resource": key.resource}
    attributes |= {name: value for name in ("namespace", "name") if (value := getattr(key, name))}
    of_path = {"nonResourceAttributes": {"verb": key.verb, "path": key.path}}
    return {
        "user": key.user,
        "groups": list(key.groups),
        "uid": key.uid,
        "extra": {name: list(values) for name, values in key.extra},
        **(of_path if key.path else {"resourceAttributes": attributes}),
    }
