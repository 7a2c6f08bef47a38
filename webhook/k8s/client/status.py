"""The API server's errors: Status objects (metav1.Status)."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from webhook.k8s.views import View

# What admission denies, another account may not do either: quotas, LimitRanges, policies and webhooks.
_ADMISSION: Final = re.compile(
    r"(exceeded|failed) quota: | denied (the )?request: | usage per (Container|Pod) is |violates PodSecurity"
)


class StatusCause(View, frozen=True):
    """One of the ``details.causes`` of a Status."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(View, frozen=True):
    """``details`` of a Status."""

    causes: tuple[StatusCause, ...] | None = None


class ApiStatus(View, frozen=True):
    """An error, as the API server answers it or writes it into a watch."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None

    @property
    def text(self) -> str:
        """The message on one line. It may quote an object, so it is for the one who sent that object."""
        return " ".join((self.message or "").split()) or "no message"

    @property
    def is_of_admission(self) -> bool:
        """Whether the object itself is denied; otherwise a status 403 is about the account that sent it."""
        return bool(_ADMISSION.search(self.text))

    @property
    def is_of_future_version(self) -> bool:
        """Whether etcd has not reached the requested resourceVersion (``NewTooLargeResourceVersionError``, apiserver).

        Before Kubernetes 1.34 etcd's own error is passed on as a plain text.
        """
        causes = (self.details and self.details.causes) or ()
        too_large = any(cause.reason == "ResourceVersionTooLarge" for cause in causes)
        return too_large or "required revision is a future revision" in self.text

    @property
    def is_of_terminating_namespace(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted."""
        causes = (self.details and self.details.causes) or ()
        return any(cause.reason == "NamespaceTerminating" for cause in causes)


_decode: Final = msgspec.json.Decoder(ApiStatus).decode
# Of a text that is not a Status, in characters.
_MAX_LINE: Final = 200


def decode_status(body: bytes | msgspec.Raw) -> ApiStatus:
    """The Status in the body of an answer: one with a plain line as its message, an empty one for anything else.

    Go answers plain text before an API server's own code runs, for example to HTTP at a port for HTTPS. A proxy answers
    a page.
    """
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ApiStatus(message=_plain_line(bytes(body)))


def _plain_line(body: bytes) -> str | None:
    """The line that a body is; None where it is none."""
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return None
    is_line = len(text) <= _MAX_LINE and text.isprintable() and not text.startswith(("<", "{", "["))
    return text if is_line else None
