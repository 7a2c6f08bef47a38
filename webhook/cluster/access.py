"""Questions to the API server: the user of a token, and what RBAC lets a user do (TokenReview, SubjectAccessReview)."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.facts import AccessKey, TokenKey
from webhook.k8s.client.api import Forbidden, Transport, await_answer, decode

S = TypeVar("S")

_ACCESS: Final = "subjectaccessreviews.authorization.k8s.io"
_TOKENS: Final = "tokenreviews.authentication.k8s.io"


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


async def is_allowed(transport: Transport, key: AccessKey, seconds: float) -> bool | Unavailable:
    """Whether RBAC lets a user do something, by a SubjectAccessReview; `Unavailable` without an answer in time."""
    answer = await _create_review(transport, _ACCESS, "SubjectAccessReview", _access(key), _AccessReview, seconds)
    return answer if isinstance(answer, Unavailable) else answer.status.allowed


async def authenticate(transport: Transport, key: TokenKey, seconds: float) -> UserInfo | Unavailable | None:
    """The user of a bearer token, by a TokenReview; None where the API server does not accept the token.

    A token whose user has no name is not accepted either, since RBAC cannot evaluate it.
    """
    answer = await _create_review(transport, _TOKENS, "TokenReview", {"token": key.token}, _TokenReview, seconds)
    if isinstance(answer, Unavailable):
        return answer
    return answer.status.user if answer.status.authenticated and answer.status.user.username else None


async def _create_review(
    transport: Transport, resource: str, kind: str, spec: dict[str, Any], view: type[S], seconds: float
) -> S | Unavailable:
    """A review that is created is answered at once, and kept nowhere."""
    plural, _, group = resource.partition(".")
    review = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    answer = await await_answer(transport.post(f"/apis/{group}/v1/{plural}", review), seconds)
    if isinstance(answer, Unavailable):
        return answer
    status, body = answer
    if status == 403:
        return Forbidden(f"the API server denied the request (403): grant create on {resource}")
    if status not in (200, 201):
        return Unavailable(f"the API server answered {status} to create {plural}")
    return decode(body, view, kind)


def _access(key: AccessKey) -> dict[str, Any]:
    named = {"namespace": key.namespace, "name": key.name}
    attributes = {"verb": key.verb, "group": key.group, "resource": key.resource}
    attributes |= {name: value for name, value in named.items() if value}
    of_path = {"nonResourceAttributes": {"verb": key.verb, "path": key.path}}
    return {
        "user": key.user,
        "groups": list(key.groups),
        "uid": key.uid,
        "extra": {name: list(values) for name, values in key.extra},
        **(of_path if key.path else {"resourceAttributes": attributes}),
    }
