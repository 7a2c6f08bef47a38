"""The cluster's ControllerRevisions as virt-controller finds and changes them in one round.

Nothing is written: what would be created or deleted is remembered, and seen by later look-ups.
"""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.lookup import Get, already_exists, get_required

_KIND: Final = "ControllerRevision"


class Store:
    """What is there, and what a round makes of it.

    Args:
        get: looks objects up.

    Attributes:
        created: revisions that were not there before.
        deleted: the names of those that no longer are, in the VM's namespace.
    """

    def __init__(self, get: Get) -> None:
        self._given: Final = get
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
        return self._given(kind, namespace, name)

    def create(self, revision: Json) -> None:
        """Add a revision.

        Raises:
            Rejection: there is one of this name.
        """
        metadata = revision["metadata"]
        if self.get(_KIND, metadata["namespace"], metadata["name"]) is not None:
            raise already_exists(_KIND, metadata["name"])
        self.created.append(revision)

    def delete(self, namespace: str, name: str) -> None:
        """Remove a revision.

        Raises:
            NotFound: there is none of this name.
        """
        get_required(self.get, _KIND, namespace, name)
        self.deleted.append(name)
