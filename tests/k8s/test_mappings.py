"""Mappings at paths: what is there, and how a mistake is said."""

from __future__ import annotations

import pytest

from webhook.errors import InputError
from webhook.k8s.mappings import mapping

POOL = {"spec": {"template": {"spec": {"a": 1}, "metadata": None}, "replicas": 2}}


def test_what_is_not_there_is_empty_unless_it_is_required() -> None:
    assert mapping(POOL, "spec", "template", "spec", required=True) == {"a": 1}
    assert mapping(POOL, "status", "conditions") == {}
    assert mapping(POOL, "spec", "template", "metadata") == {}
    with pytest.raises(InputError) as missing:
        mapping(POOL, "spec", "template", "metadata", required=True)
    assert (missing.value.what, missing.value.where) == ("is missing", "spec.template.metadata")


def test_what_is_no_mapping_is_told_with_its_whole_path() -> None:
    with pytest.raises(InputError) as wrong:
        mapping(POOL["spec"], "replicas", "x", where="spec")
    assert (wrong.value.what, wrong.value.where) == ("must be a mapping", "spec.replicas")
