"""References to images: the grammar of the distribution module, and its defaults."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.images.references import MAX_CHARACTERS, ImageReference, parse_reference

DIGEST = "sha256:" + "a1" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fedora", ImageReference("docker.io", "library/fedora", "latest")),
        ("kubevirt/fedora:40", ImageReference("docker.io", "kubevirt/fedora", "40")),
        ("index.docker.io/fedora", ImageReference("docker.io", "library/fedora", "latest")),
        ("quay.io/containerdisks/fedora:40", ImageReference("quay.io", "containerdisks/fedora", "40")),
        ("localhost/disk", ImageReference("localhost", "disk", "latest")),
        ("registry:5000/disk", ImageReference("registry:5000", "disk", "latest")),
        ("registry:5000/a/b/c:v1", ImageReference("registry:5000", "a/b/c", "v1")),
        ("Registry.Example/disk", ImageReference("registry.example", "disk", "latest")),
        ("[::1]:5000/disk", ImageReference("[::1]:5000", "disk", "latest")),
        (f"quay.io/disk@{DIGEST}", ImageReference("quay.io", "disk", "", DIGEST)),
        # As kubelets and CRI-O write it: the digest decides.
        (f"quay.io/disk:40@{DIGEST}", ImageReference("quay.io", "disk", "", DIGEST)),
        ("quay.io/a__b/c-d.e", ImageReference("quay.io", "a__b/c-d.e", "latest")),
    ],
)
def test_a_reference_is_read_as_container_runtimes_read_it(text: str, expected: ImageReference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "@",
        "/",
        "quay.io/",
        "quay.io//disk",
        "quay.io/Disk",
        "quay.io/disk:",
        "quay.io/disk:-x",
        f"quay.io/disk:{'x' * 129}",
        "quay.io/disk@sha256:abc",
        f"quay.io/disk@sha512:{'a' * 128}",
        f"quay.io/disk@{DIGEST}@{DIGEST}",
        "quay.io/../secrets",
        "quay.io/a/../../b",
        "quay.io/disk?x=1",
        "quay.io/disk#x",
        "quay.io/%2e%2e/disk",
        "user@quay.io/disk",
        "https://quay.io/disk",
        "quay.io/disk\r\nHost: x",
        "quay.io/disk\n",
        "quay.io:123456/disk",
        "-x.example/disk",
        "quay.io/" + "a" * 300,
        "quay.io/" + "a/" * 300,
        "a" * (MAX_CHARACTERS + 1),
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
