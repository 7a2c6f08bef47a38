from __future__ import annotations

import pytest

from webhook.install.registration import advise
from webhook.k8s.types.meta import ApiStatus


@pytest.mark.parametrize("status", [401, 403])
def test_an_account_without_a_permission_needs_another_account(status: int) -> None:
    assert "account" in advise(status, ApiStatus(message='deployments.apps is forbidden: User "x" cannot'), "patch it")


@pytest.mark.parametrize(
    "message",
    [
        'pods "a" is forbidden: exceeded quota: small, requested: pods=1',
        'admission webhook "x" denied the request: no',
        'ValidatingAdmissionPolicy "x" with binding "y" denied request: no',
        'pods "a" is forbidden: violates PodSecurity "restricted:latest"',
    ],
)
def test_what_admission_denies_needs_no_other_account(message: str) -> None:
    advice = advise(403, ApiStatus(message=message), "patch it")

    assert advice
    assert "account" not in advice


def test_what_an_answer_does_not_show_is_not_made_up() -> None:
    assert advise(500, ApiStatus(message="etcd is away"), "patch it") == ""
