"""The fields of a node that the index keeps."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from webhook.images.nodes import IMAGES_ANNOTATION, KUBELET_LIMIT, MAX_IMAGES, ReportedNode, images_of, references_of

REGISTRIES = {"quay.io", "docker.io"}


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def node(*images: list[str], annotation: str = "", **status: Any) -> ReportedNode:
    info = {"architecture": "arm64", "operatingSystem": "linux"}
    written = {
        "metadata": {"name": "a", "annotations": {IMAGES_ANNOTATION: annotation} if annotation else None},
        "spec": {"podCIDRs": ["203.0.113.0/24"]},
        "status": {"images": [{"names": names} for names in images], "nodeInfo": info, **status},
    }
    return msgspec.json.decode(json.dumps(written).encode(), type=ReportedNode)


def test_images_are_known_by_their_digests() -> None:
    found = node(
        [f"quay.io/disk@{digest(1)}", "quay.io/disk:40"],
        ["quay.io/only-a-tag:1"],
        [f"docker.io/library/fedora@{digest(2)}"],
        [f"other.example/disk@{digest(3)}"],
        ["<none>@<none>", "<none>:<none>"],
    )
    assert [reference.digest for reference in references_of(found, REGISTRIES)] == [digest(1), digest(2)]


def test_what_is_kept_of_a_node() -> None:
    found = node([f"quay.io/disk@{digest(1)}"], addresses=[{"type": "InternalIP", "address": "10.0.0.1"}, {}])
    kept = images_of(found, list(references_of(found, REGISTRIES)))
    assert kept.platform == "linux/arm64"
    assert [reference.digest for reference in kept.references] == [digest(1)]
    assert kept.addresses == ("10.0.0.1", "203.0.113.0/24")
    assert not kept.is_cut


def test_a_node_that_lists_fifty_images_probably_has_more() -> None:
    full = [[f"quay.io/i{number}:1"] for number in range(KUBELET_LIMIT)]
    assert images_of(node(*full), []).is_cut
    assert not images_of(node(*full[1:]), []).is_cut
    assert not images_of(node(*full, ["quay.io/one-more:1"]), []).is_cut


def test_the_annotation_of_a_runtime_adds_images() -> None:
    full = [[f"quay.io/i{number}:1"] for number in range(KUBELET_LIMIT)]
    found = node(*full, annotation=f"quay.io/disk@{digest(7)}\nquay.io/disk@{digest(8)} junk")
    references = list(references_of(found, REGISTRIES))
    assert [reference.digest for reference in references] == [digest(7), digest(8)]
    assert not images_of(found, references).is_cut


def test_the_images_of_one_node_are_bounded() -> None:
    found = node(*([f"quay.io/disk@{digest(number)}"] for number in range(MAX_IMAGES * 2)))
    assert len(list(references_of(found, REGISTRIES))) == MAX_IMAGES


def test_a_node_may_have_no_status() -> None:
    bare = msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=ReportedNode)
    assert images_of(bare, list(references_of(bare, REGISTRIES))).platform == "linux/amd64"
