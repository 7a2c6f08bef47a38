"""ControllerRevisions while a round of virt-controller changes them."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Get, Rejection, get_required

_KIND: Final = "ControllerRevision"


class RevisionStore:
    """What is there, and what a round makes of it.

    Args:
        get: an object by kind, namespace and name; None: there is none.

    Attributes:
        created: revisions that were not there before.
        deleted: the names of those that no longer are, in the VM's namespace.
    """

    def __init__(self, get: Get) -> None:
        self._lookup: Final = get
        self.created: Final[list[Json]] = []
        self.deleted: Final[list[str]] = []

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Any object, as after the round's changes so far."""
        if kind == _KIND:
            if name in self.deleted:
                return None
            for stored in self.created:
                if stored["metadata"]["name"] == name:
                    return stored
        return self._lookup(kind, namespace, name)

    def create(self, revision: Json) -> None:
        """Add a revision; a `Rejection` where there is one of this name."""
        metadata = revision["metadata"]
        if self.get(_KIND, metadata["namespace"], metadata["name"]) is not None:
            raise Rejection(f'controllerrevisions.apps "{metadata["name"]}" already exists')
        self.created.append(revision)

    def delete(self, namespace: str, name: str) -> None:
        """Remove a revision; `NotFound` where there is none of this name."""
        get_required(self.get, _KIND, namespace, name)
        self.deleted.append(name)
