from __future__ import annotations

from typing import Any

import pytest

from webhook.admission.redaction import REDACTED, redacted

SECRET = "hunter2"


@pytest.mark.parametrize("volume", ["cloudInitNoCloud", "cloudInitConfigDrive"])
@pytest.mark.parametrize("member", ["userData", "userDataBase64", "networkData", "networkDataBase64"])
def test_cloud_init(volume: str, member: str) -> None:
    vm = {
        "spec": {
            "template": {"spec": {"volumes": [{"name": "c", volume: {member: SECRET, "secretRef": {"name": "s"}}}]}}
        }
    }

    shown = redacted(vm)

    assert SECRET not in str(shown)
    entry = shown["spec"]["template"]["spec"]["volumes"][0][volume]
    assert entry == {member: REDACTED, "secretRef": {"name": "s"}}
    assert SECRET in str(vm), "the original stays as it is"


def test_copies_and_secrets() -> None:
    applied = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "a": "b"}}}
    secret = {"kind": "Secret", "data": {"k": SECRET}, "stringData": {"k": SECRET}}

    assert redacted(applied)["metadata"]["annotations"] == {
        "kubectl.kubernetes.io/last-applied-configuration": REDACTED,
        "a": "b",
    }
    assert SECRET not in str(redacted(secret))


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, {"kind": "ConfigMap", "data": {"a": "b"}}, {"userData": ""}])
def test_the_rest_stays(value: Any) -> None:
    assert redacted(value) == value
