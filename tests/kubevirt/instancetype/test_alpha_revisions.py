from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.builders import config_of
from webhook.kubevirt.instancetype.revisions import content
from webhook.kubevirt.rejection import Rejection

ALPHA = "instancetype.kubevirt.io/v1alpha1"
NEITHER: list[Any] = [b"", b"{", {"unknown": 1}, {"cpu": {"guest": "four"}}, [], b"[" * 2000]


@pytest.mark.parametrize(
    ("spec", "data", "version"),
    [
        *((spec, {}, "1.6") for spec in NEITHER),
        ({"cpu": {"guest": 4, "maxSockets": 8}, "memory": {"guest": "1Gi"}}, {}, "1.6"),
        # Not base64, or with a member beside it.
        *(({}, {"spec": text}, "1.6") for text in ("not base64!", "e30", 7, None)),
        ({}, {"metadata": {}}, "1.6"),
        # Later releases do not read it.
        ({}, {}, "1.7"),
    ],
)
def test_the_bare_spec_of_a_v1alpha1_object_that_is_neither(spec: Any, data: dict[str, Any], version: str) -> None:
    """The oldest revisions hold no more."""
    written = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
    held = {"apiVersion": ALPHA, "spec": base64.b64encode(written).decode()} | data
    with pytest.raises(Rejection, match="Object 'Kind' is missing"):
        content({"metadata": {"name": "cr"}, "data": held}, config_of(version).rules)
