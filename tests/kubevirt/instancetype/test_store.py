from __future__ import annotations

import pytest

from tests.kubevirt.samples import instancetype, revision
from tests.lookups import among
from webhook.kubevirt.instancetype.revisions import Store
from webhook.kubevirt.rejection import NotFound, Rejection

KIND = "ControllerRevision"


def test_what_is_created_is_found() -> None:
    store = Store(among([instancetype()]))
    made = revision("new", instancetype())
    store.create(made)

    assert store.created == [made]
    assert store.get(KIND, "demo", "new") is made
    assert store.get(KIND, "demo", "other") is None
    assert store.get("VirtualMachineClusterInstancetype", "", "u1") == instancetype()
    with pytest.raises(Rejection, match=r'^controllerrevisions.apps "new" already exists$'):
        store.create(made)


def test_what_is_deleted_is_gone() -> None:
    store = Store(among([revision("old", instancetype())]))
    store.delete("demo", "old")

    assert store.deleted == ["old"]
    assert store.get(KIND, "demo", "old") is None
    with pytest.raises(NotFound, match=r'^controllerrevisions.apps "old" not found$'):
        store.delete("demo", "old")
