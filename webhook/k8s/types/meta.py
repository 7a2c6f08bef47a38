"""What all Kubernetes objects have (metav1), as views: only the fields that are read, decoded in one pass by msgspec.

A view is not a model: everything else in the object is skipped while decoding, which is what makes a 20 KB pod cost
microseconds, and patches name paths instead. Every field may be absent or null, as Kubernetes allows; a value of
another type is a `msgspec.ValidationError` with its path.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import msgspec


class View(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Base of all views: camelCase on the wire, immutable, invisible to the cyclic collector (trees have no cycles)."""


class Condition(View, frozen=True):
    """One of the ``status.conditions`` of an object (metav1.Condition, and those of Pods, Deployments and VMIs)."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class OwnerReference(View, frozen=True):
    """One of the ``metadata.ownerReferences`` of an object (metav1.OwnerReference)."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group; the version says nothing (old owners still read ``kubevirt.io/v1alpha3``)."""
        group, slash, _ = (self.api_version or "").partition("/")
        return group if slash else ""


class ObjectMeta(View, frozen=True):
    """``metadata`` of an object (metav1.ObjectMeta)."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def label(self, key: str) -> str | None:
        """The value of a label; None where the object does not have it."""
        return self.labels.get(key) if self.labels else None

    def annotation(self, key: str) -> str | None:
        """The value of an annotation; None where the object does not have it."""
        return self.annotations.get(key) if self.annotations else None

    def controller_owner(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``; Kubernetes allows at most one."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


NO_META: Final = ObjectMeta()


class OwnedMeta(ObjectMeta, frozen=True):
    """Metadata with the record of who wrote which field, not decoded: few reviews need it."""

    managed_fields: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Object(View, frozen=True):
    """What every object has, where nothing else is read of it; a view of a kind adds its own ``spec``."""

    metadata: ObjectMeta | None = None

    @property
    def meta(self) -> ObjectMeta:
        """The object's ``metadata``; an empty one where it has none."""
        return self.metadata or NO_META


class Namespace(Object, frozen=True):
    """A Namespace (core/v1): its labels and annotations hold modes and defaults."""


class Unstructured(Object, frozen=True):
    """An object for the rules that know whole objects: all but the metadata is plain JSON, not to be changed."""

    api_version: str | None = None
    kind: str | None = None
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    data: dict[str, Any] | None = None

    def plain(self) -> dict[str, Any]:
        """The object as plain JSON, not to be changed; its ``metadata`` has the fields of the view alone."""
        # Where a view has the record of who wrote which field, it is not decoded, and no rule reads it.
        metadata: dict[str, Any] = msgspec.to_builtins(self.meta, builtin_types=(msgspec.Raw,))
        metadata.pop("managedFields", None)
        head = {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}
        rest = {"spec": self.spec, "status": self.status, "data": self.data}
        return head | {name: value for name, value in rest.items() if value is not None}


class StoredMeta(ObjectMeta, frozen=True):
    """``metadata`` of an object that the API server has stored, with its version and the counter of its ``spec``."""

    resource_version: str | None = None
    generation: int | None = None


class StoredObject(Unstructured, frozen=True):
    """An `Unstructured` object that the API server has stored, with its ``metadata.generation``."""

    metadata: StoredMeta | None = None


class LeaseSpec(View, frozen=True):
    """``spec`` of a Lease (coordination.k8s.io/v1): who leads, since when and for how many seconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Lease(Object, frozen=True):
    """A Lease (coordination.k8s.io/v1), by which replicas elect their leader (client-go, ``tools/leaderelection``)."""

    metadata: StoredMeta | None = None
    spec: LeaseSpec | None = None


# What admission denies, another account may not do either: quotas, LimitRanges, policies and webhooks.
_ADMISSION: Final = re.compile(
    r"(exceeded|failed) quota: | denied (the )?request: | usage per (Container|Pod) is |violates PodSecurity"
)


class ListMeta(View, frozen=True):
    """``metadata`` of a list, or of a Status (metav1.ListMeta): a list's version, and the token of its next page.

    That of a list that has expired continues it with the objects of now (API concepts, "410 Gone responses").
    """

    resource_version: str | None = None
    # ``continue`` is a keyword of Python.
    continue_: str | None = msgspec.field(default=None, name="continue")


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
    metadata: ListMeta | None = None

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
        return self._has_cause("ResourceVersionTooLarge") or "required revision is a future revision" in self.text

    @property
    def is_of_terminating_namespace(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted."""
        return self._has_cause("NamespaceTerminating")

    def _has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in (self.details and self.details.causes) or ())


_decode: Final = msgspec.json.Decoder(ApiStatus).decode
# Of a text that is not a Status, in characters.
_MAX_LINE: Final = 200


def decode_status(body: bytes | msgspec.Raw) -> ApiStatus:
    """The Status in the body of an answer: one with a plain line as its message, an empty one for anything else.

    Go answers plain text before an API server's own code runs, for example to HTTP at a port for HTTPS.
    """
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = bytes(body).decode().strip()
    except UnicodeDecodeError:
        return ApiStatus()
    is_line = len(text) <= _MAX_LINE and text.isprintable() and not text.startswith(("<", "{", "["))
    return ApiStatus(message=text if is_line else None)


def unix_time(timestamp: str | None) -> float | None:
    """An RFC 3339 timestamp in Unix seconds; None if it is absent or malformed."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None
