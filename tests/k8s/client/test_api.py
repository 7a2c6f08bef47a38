"""Names out of other people's objects, before they become URLs."""

from __future__ import annotations

import pytest

from tests.cluster.fake_apiserver import FakeApiServer
from webhook.k8s.client.api import fetch_body
from webhook.k8s.client.list_pages import fetch_list
from webhook.k8s.client.transport import KubernetesTransport
from webhook.k8s.resources import PENDING_PODS

LONGEST = 253


@pytest.mark.parametrize(
    "name",
    [
        *("x" * (LONGEST + 1), "x" * 1_000_000, "\u00e9" * (LONGEST + 1), "", ".", "..", "a%2Fb", "a/b"),
        "../../../../api/v1/namespaces/kube-system/secrets/x",
    ],
)
async def test_names_that_no_object_can_have_are_not_asked_for(
    server: FakeApiServer, transport: KubernetesTransport, name: str
) -> None:
    assert await fetch_body(transport, PENDING_PODS, "demo", name, 5.0) is None
    assert await fetch_body(transport, PENDING_PODS, name, "pod", 5.0) is None
    # Without a namespace, a list is of all.
    assert not name or await fetch_list(transport, PENDING_PODS, name, "", 5.0) == ()
    assert server.asked == []


async def test_the_longest_name_is_asked_for(server: FakeApiServer, transport: KubernetesTransport) -> None:
    assert await fetch_body(transport, PENDING_PODS, "demo", "x" * LONGEST, 5.0) is None
    assert [asked.path for asked in server.asked] == [PENDING_PODS.path("demo", "x" * LONGEST)]
