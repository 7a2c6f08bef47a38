from __future__ import annotations

import pytest

from tests.kubevirt.samples import among, instancetype, revision
from webhook.kubevirt.instancetype.revision_store import RevisionStore
from webhook.kubevirt.rejection import NotFound, Rejection


def test_what_is_created_is_found_and_what_is_deleted_is_gone() -> None:
    store, made = RevisionStore(among([revision("old", instancetype())])), revision("new", instancetype())
    store.create(made)
    store.delete("demo", "old")
    assert (store.created, store.deleted) == ([made], ["old"])
    assert [store.get("ControllerRevision", "demo", name) for name in ("new", "old", "other")] == [made, None, None]
    with pytest.raises(Rejection, match=r'^controllerrevisions.apps "new" already exists$'):
        store.create(made)
    with pytest.raises(NotFound, match=r'^controllerrevisions.apps "old" not found$'):
        store.delete("demo", "old")
