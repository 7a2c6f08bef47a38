"""Text becomes part of a URL as what it is: a name is one segment of the path, and no more."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from tests.cluster.fake_apiserver import FakeApiServer
from webhook.errors import InputError
from webhook.k8s.client.transport import KubernetesTransport
from webhook.k8s.paths import group_path, is_segment, object_path, version_path

SEPARATORS = "/?#%&=;:@+ .\\\n\x00ü\ud800"
NAMES = st.text(st.sampled_from(f"{SEPARATORS}ab2f"), min_size=1, max_size=8) | st.text(min_size=1, max_size=8)


@given(NAMES, NAMES, NAMES)
def test_a_name_is_one_segment_or_none(plural: str, namespace: str, name: str) -> None:
    try:
        path = object_path("kubevirt.io/v1", plural, namespace, name)
    except InputError:
        assert not all(map(is_segment, (plural, namespace, name)))
        return
    sent = URL(f"https://localhost:6443{path}?dryRun=All")
    assert dict(sent.query) == {"dryRun": "All"}
    assert sent.fragment == ""
    # As the API server reads it: unescaped first, and then taken apart.
    segments = unquote(sent.raw_path).split("/")
    assert segments == ["", "apis", "kubevirt.io", "v1", "namespaces", namespace, plural, name]


@pytest.mark.parametrize("name", ["a/status", "a%2Fstatus", "..", ".", "\ud800", "x" * 254])
def test_what_no_object_can_be_called_is_no_part_of_a_url(name: str) -> None:
    with pytest.raises(InputError):
        object_path("v1", "pods", "shop", name)
    with pytest.raises(InputError):
        object_path("v1", "pods", name)
    with pytest.raises(InputError):
        version_path(f"kubevirt.io/{name}")


def test_paths() -> None:
    assert group_path("kubevirt.io") == "/apis/kubevirt.io"
    assert version_path("v1") == "/api/v1"
    assert version_path("kubevirt.io/v1") == "/apis/kubevirt.io/v1"
    assert object_path("v1", "nodes") == "/api/v1/nodes"
    assert object_path("v1", "pods", "shop", "a?b") == "/api/v1/namespaces/shop/pods/a%3Fb"
    assert object_path("v1", "services", "shop", "https:web:443") == "/api/v1/namespaces/shop/services/https:web:443"


@pytest.mark.parametrize("path", ["/api/v1/pods/web?x=", "/api/v1/pods/web#", "/api/v1/../pods", "/api/v1/..", "api"])
async def test_a_path_that_is_not_escaped_is_never_sent(
    server: FakeApiServer, transport: KubernetesTransport, path: str
) -> None:
    with pytest.raises(ValueError, match="paths"):
        await transport.request("POST", path, {"dryRun": "All"}, {})
    with pytest.raises(ValueError, match="paths"):
        await anext(transport.watch(path, {}))
    assert server.asked == []


async def test_the_query_stays_whatever_a_name_is(server: FakeApiServer, transport: KubernetesTransport) -> None:
    for name in ("web?x=", "web#", "web&dryRun=", "a b", "ü", "web;"):
        await transport.request("PATCH", object_path("kubevirt.io/v1", "vms", "shop", name), {"dryRun": "All"}, {})
        assert (server.asked[-1].path, server.asked[-1].query) == (
            f"/apis/kubevirt.io/v1/namespaces/shop/vms/{name}",
            {"dryRun": "All"},
        )
