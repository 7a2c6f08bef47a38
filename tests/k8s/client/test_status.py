from __future__ import annotations

import json

import pytest

from webhook.k8s.types.meta import decode_status


@pytest.mark.parametrize(
    ("message", "is_of_admission"),
    [
        ('configmaps "a" is forbidden: exceeded quota: q, requested: count/configmaps=1', True),
        ('pods "a" is forbidden: failed quota: q: must specify limits.cpu for: webhook', True),
        ('pods "a" is forbidden: maximum memory usage per Container is 64Mi, but limit is 512Mi', True),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', True),
        (
            "deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            True,
        ),
        ('admission webhook "p.example.org" denied the request: no', True),
        ('namespaces "a" is forbidden: User "bob" cannot get resource "namespaces" in API group ""', False),
        ('clusterroles "a" is forbidden: user "bob" is attempting to grant RBAC permissions not currently held', False),
        ("Unauthorized", False),
    ],
)
def test_what_another_account_may_not_do_either(message: str, is_of_admission: bool) -> None:
    body = json.dumps({"kind": "Status", "status": "Failure", "message": message}).encode()

    assert decode_status(body).is_of_admission is is_of_admission


def test_a_line_of_plain_text_is_the_message() -> None:
    said = "Client sent an HTTP request to an HTTPS server."

    assert decode_status(f"{said}\n".encode()).text == said


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[]", b"{}", b"{", b"a\nb", b"a\x1bb", b"a" * 201])
def test_what_is_no_status_says_nothing(body: bytes) -> None:
    status = decode_status(body)

    assert (status.text, status.is_of_admission, status.is_of_terminating_namespace) == ("no message", False, False)
