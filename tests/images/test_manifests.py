"""References to images: the grammar of the distribution module, and its defaults.

Manifests and indexes, and invalid ones."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.json_values import JSON_VALUES
from webhook.images import manifests
from webhook.images.manifests import ImageReference, ManifestError, parse_manifest, parse_reference

DIGEST = "sha256:" + "a1" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("fedora", "docker.io library/fedora latest"), ("kubevirt/fedora:40", "docker.io kubevirt/fedora 40")),
        ("index.docker.io/fedora", "docker.io library/fedora latest"),
        ("quay.io/containerdisks/fedora:40", "quay.io containerdisks/fedora 40"),
        *(("localhost/disk", "localhost disk latest"), ("registry:5000/disk", "registry:5000 disk latest")),
        *(("registry:5000/a/b/c:v1", "registry:5000 a/b/c v1"), ("[::1]:5000/disk", "[::1]:5000 disk latest")),
        *(
            ("Registry.Example/disk", "registry.example disk latest"),
            ("quay.io/a__b/c-d.e", "quay.io a__b/c-d.e latest"),
        ),
        # As kubelets and CRI-O write it: the digest decides.
        *((f"quay.io/disk{tag}@{DIGEST}", f"quay.io disk  {DIGEST}") for tag in ("", ":40")),
    ],
)
def test_a_reference_is_read_as_container_runtimes_read_it(text: str, expected: str) -> None:
    assert parse_reference(text) == ImageReference(*expected.split(" "))


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "@", "/", "quay.io/", "quay.io//disk", "quay.io/Disk", "quay.io/disk:", "quay.io/disk:-x"),
        *(f"quay.io/disk:{'x' * 129}", "quay.io/disk@sha256:abc", f"quay.io/disk@sha512:{'a' * 128}"),
        *(f"quay.io/disk@{DIGEST}@{DIGEST}", "quay.io/../secrets", "quay.io/a/../../b", "quay.io/disk?x=1"),
        *("quay.io/disk#x", "quay.io/%2e%2e/disk", "user@quay.io/disk", "https://quay.io/disk"),
        *("quay.io/disk\r\nHost: x", "quay.io/disk\n", "quay.io:123456/disk", "-x.example/disk"),
        *("quay.io/" + "a" * 300, "quay.io/" + "a/" * 300, "a" * (manifests.MAX_CHARACTERS + 1)),
    ],
)
def test_what_no_runtime_would_pull_is_not_a_reference(text: str) -> None:
    assert parse_reference(text) is None


@given(st.text(max_size=600) | st.text(alphabet="ab.:/@-_[]0123456789", max_size=600))
def test_whatever_the_text_is_the_url_stays_inside_the_repository(text: str) -> None:
    reference = parse_reference(text)
    if reference is not None:
        assert re.fullmatch(r"[a-z0-9._/-]+", reference.repository)
        assert ".." not in reference.repository.split("/")
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}|sha256:[0-9a-f]{64}", reference.version)
        assert re.fullmatch(r"[a-z0-9.:\[\]-]+", reference.registry)


@given(
    st.sampled_from(["quay.io", "registry:5000", "localhost"]),
    st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9]{1,8}){0,3}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
)
def test_a_reference_is_its_own_text(registry: str, repository: str, tag: str) -> None:
    reference = ImageReference(registry, repository, tag)
    assert parse_reference(str(reference)) == reference
    pinned = ImageReference(registry, repository, "", DIGEST)
    assert parse_reference(str(pinned)) == pinned


OCI = "application/vnd.oci.image.manifest.v1+json"


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def layer(number: int, size: Any = 10) -> dict[str, Any]:
    return {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(number), "size": size}


def manifest(*layers: dict[str, Any], **more: Any) -> bytes:
    document = {"schemaVersion": 2, "mediaType": OCI, "config": layer(0), "layers": list(layers), **more}
    return json.dumps(document).encode()


def index(*images: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 2, "manifests": list(images)}).encode()


def image(number: int, system: str = "linux", architecture: str = "amd64", **more: str) -> dict[str, Any]:
    return {**layer(number), "platform": {"os": system, "architecture": architecture, **more}}


def test_an_index_has_an_image_for_each_platform() -> None:
    found = parse_manifest(
        index(image(1), image(2, architecture="arm64", variant="v8"), image(3), image(4, "unknown", "unknown"))
    )
    assert found == {"linux/amd64": digest(1), "linux/arm64": digest(2)}


@pytest.mark.control("hostile-registries")
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{}", b"\xff", b'{"schemaVersion": 1, "layers": []}', b'{"schemaVersion": 2}'),
        *(b'{"schemaVersion": 2, "layers": [], "manifests": []}', b'{"schemaVersion": 2, "layers": 1}'),
        *(make({"digest": digest, "size": 1}) for make in (manifest, index) for digest in ("sha256:abc", "../x", "x")),
        *(manifest(layer(1, size)) for size in (-1, 2**60, 1.5, "10")),
        *(manifest(*map(layer, range(manifests.MAX_LAYERS + 1))), index(*map(image, range(manifests.MAX_IMAGES + 1)))),
        *(b"[" * 100_000, b'{"schemaVersion": 2, "layers": [], "annotations": ' + b'{"a":' * 100_000),
        b" " * (manifests.MAX_BYTES + 1),
    ],
)
def test_what_is_no_manifest_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(body)


@given(JSON_VALUES | st.fixed_dictionaries({"schemaVersion": st.just(2), "layers": JSON_VALUES}))
def test_whatever_json_comes_there_is_a_manifest_or_an_error(value: Any) -> None:
    try:
        found = parse_manifest(json.dumps(value).encode())
    except ManifestError:
        return
    assert isinstance(found, tuple | dict)


@pytest.mark.control("manifests-that-lie")
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**40)), max_size=20))
def test_an_image_has_each_layer_once_with_a_size_of_the_manifest(layers: list[tuple[int, int]]) -> None:
    found = parse_manifest(manifest(*(layer(number, size) for number, size in layers)))
    assert isinstance(found, tuple)
    assert [each.digest for each in found] == list(dict.fromkeys(digest(number) for number, _ in layers))
    assert all((int(each.digest[7:], 16), each.size) in layers for each in found)


def test_a_digest_is_that_of_the_bytes() -> None:
    assert manifests.digest_of(b"x") == f"sha256:{hashlib.sha256(b'x').hexdigest()}"
