"""The user of a bearer token, and whether RBAC permits them: what both listeners with tokens have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from webhook.admission.wire import UserInfo
from webhook.facts import AccessKey, Facts, TokenKey
from webhook.policies.common.required_facts import read

_LOOPBACK_HOSTS: Final = ("127.0.0.1", "[::1]", "localhost")


class RequestDenied(Exception):  # noqa: N818 - an answer
    """A request that gets nothing.

    Args:
        status: the HTTP status.
        sentence: why, and what to do.
    """

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(status)
        self.status: Final = status
        self.sentence: Final = sentence
        self.headers: Final = headers


def require_loopback_host(request: web.BaseRequest) -> None:
    """Check that a request to a loopback address names such an address itself.

    A page in a user's browser can reach this address under a name of its own that points here (DNS rebinding).

    Raises:
        RequestDenied: the request names another host.
    """
    header = request.headers.get("Host", "").lower()
    name, colon, port = header.rpartition(":")
    if (name if colon and port.isdigit() else header) not in _LOOPBACK_HOSTS:
        raise RequestDenied(403, "the request names another host; use 127.0.0.1 or localhost")


def token_of(request: web.BaseRequest) -> str:
    """The bearer's token.

    Raises:
        RequestDenied: there is none.
    """
    scheme, _, token = (request.headers.get("Authorization") or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise RequestDenied(
            401, "the request has no token; send Authorization: Bearer TOKEN", **{"WWW-Authenticate": "Bearer"}
        )
    return token


def user_of(token: str, facts: Facts) -> UserInfo:
    """The user of a bearer token.

    Args:
        token: the token.
        facts: the facts of the request.

    Raises:
        RequestDenied: the API server does not accept the token.
        Unreadable: the user is not known now.
    """
    user = read(facts, TokenKey(token), "whose token this is")
    if user is None:
        raise RequestDenied(
            401, "the API server does not accept this token; get a new one", **{"WWW-Authenticate": "Bearer"}
        )
    return user


def authorize(user: UserInfo, rights: Mapping[str, AccessKey], facts: Facts, *, shown: str) -> None:
    """Check that a user has all permissions.

    Args:
        user: the user of the token.
        rights: the permissions (RBAC), by their names in messages.
        facts: the facts of the request.
        shown: why they are needed, as a clause.

    Raises:
        RequestDenied: one is missing.
        Unreadable: whether the user has one is not known now.
    """
    facts.need(*rights.values())
    for right, key in rights.items():
        if not read(facts, key, "what the bearer of this token may do"):
            raise RequestDenied(403, f"{user.username} may not {right}, {shown}; ask an administrator for it")
