"""Which cluster a command uses, and as whom, where its options or a kubeconfig say so."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

import msgspec

from webhook.errors import InputError

# Of a header's name, beside letters and digits (`legalHeaderByte` of client-go's transport/round_trippers.go).
_HEADER_PUNCTUATION: Final = "!#$&'*+-.^_`|~"


class Impersonation(msgspec.Struct, frozen=True):
    """The user as whom requests are evaluated, instead of the owner of the credentials.

    Its fields are those of ``rest.ImpersonationConfig`` in client-go; without a user, requests are not impersonated.
    """

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def override(self, other: Impersonation) -> Impersonation:
        """This impersonation, with each field that another one sets taken from there."""
        return Impersonation(
            other.user or self.user, other.uid or self.uid, other.groups or self.groups, other.extra or self.extra
        )

    def headers(self) -> list[tuple[str, str]]:
        """The headers ``Impersonate-…``, one for each value; an `InputError` without a user or for an invalid value."""
        named = [("User", self.user), ("Uid", self.uid), *(("Group", group) for group in self.groups)]
        for key, values in self.extra.items():
            named += [(f"Extra-{quote(key, safe=_HEADER_PUNCTUATION)}", value) for value in values]
        # No user and no UID are empty; an empty group is sent.
        headers = [(f"Impersonate-{name}", value) for name, value in named if value or name not in ("User", "Uid")]
        if headers and not self.user:
            what = "a UID, groups or extra fields are impersonated without a user"
            raise InputError(what, "impersonation", "name the user with --as, or with as in the kubeconfig")
        for name, value in headers:
            if not value.isprintable():
                raise InputError("the value has a control character", name, "remove it")
        return headers


NOT_IMPERSONATED: Final = Impersonation()


class Kubeconfig(msgspec.Struct, frozen=True):
    """How a command reaches its cluster: the path of a kubeconfig, if any, and who replaces its user."""

    path: str = ""
    impersonation: Impersonation = NOT_IMPERSONATED
