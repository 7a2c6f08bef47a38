from __future__ import annotations

import msgspec
import pytest

from webhook.k8s.json_path import ABSENT, lookup
from webhook.kubevirt.types.views import VirtualMachine


def test_lookup() -> None:
    view = msgspec.json.decode(b'{"spec": {"template": {"metadata": {"annotations": {"a": 1}}}}}', type=VirtualMachine)

    assert lookup(view, ("spec", "template", "metadata", "annotations", "a")) == 1
    assert lookup(view, ("spec", "template", "spec", "schedulerName")) is ABSENT
    assert lookup({"a": {"b": None}}, ("a", "b")) is ABSENT
    with pytest.raises(TypeError, match=r"^a/b: "):
        lookup({"a": 1}, ("a", "b"))
