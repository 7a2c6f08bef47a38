from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kubevirt.releases import capabilities
from webhook.kubevirt.releases import release as releases
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version, capability, parse_version
from webhook.kubevirt.releases.capabilities import releases as written
from webhook.kubevirt.releases.fields import FIELDS, VMI, unknown_fields
from webhook.kubevirt.releases.release import Release, detect, is_open, release_of

SERVICE_ACCOUNT = "serviceAccountName"


def release(text: str) -> Release:
    version = parse_version(text)
    assert version
    return release_of(version)


def test_a_change_reaches_each_minor_version_in_its_own_patch_release() -> None:
    for versions, has in (("1.5.9 1.6.3 1.7.1", False), ("1.6.4 1.6.6 1.7.2 1.8.0 1.9.0", True)):
        for version in versions.split():
            assert (
                capabilities.is_reached(written("1.6.4 1.7.2 1.8.0"), Version(*map(int, version.split(".")))) is has
            ), version


def test_what_ends_and_what_single_releases_lack() -> None:
    one = capability("…", "#1", since="1.6.1", until="1.6.4 1.7.0", never="1.6.2")
    having = [f"{version}" for version in (Version(1, 6, patch) for patch in range(6)) if one.is_in(version)]
    assert having == ["1.6.1", "1.6.3"]
    assert not one.is_in(Version(1, 7, 0))
    assert not one.is_in(Version(1, 9, 0))
    # A capability that all releases have, or none, would be no difference.
    supported = [Version(1, minor, patch) for minor in range(6, 10) for patch in range(7)]
    for name, each in capabilities.CAPABILITIES.items():
        assert len({each.is_in(version) for version in supported}) == 2, name


@pytest.mark.control("invented-releases")
@pytest.mark.parametrize(
    ("text", "support"),
    [
        *(("1.5.3", "too-old"), ("4.19.1", "too-old"), ("1.6.0", "known")),
        # Newer ones have the newest rules.
        *(("1.9.7", "known"), ("1.10", "newer"), ("2.0.1", "newer")),
    ],
)
def test_support(text: str, support: str) -> None:
    found = release(text)
    assert (found.support, found.is_supported, found.is_newer) == (support, support != "too-old", support == "newer")
    assert found is release(text), "it is made once"
    assert (found.capabilities == releases.NEWEST.capabilities) is (text in ("1.9.7", "1.10", "2.0.1"))


@pytest.mark.parametrize(
    ("observed", "target", "operator", "found"),
    [
        ("v1.8.4", "v1.8.4", "v1.8.4", "1.8.4"),
        # An update, and one that is taken back: the older one counts until the end.
        ("v1.8.4", "v1.9.0", "v1.9.0", "1.8.4"),
        ("v1.9.0", "v1.8.4", "v1.8.4", "1.8.4"),
        ("v1.9.0", "v1.9.0", "v1.9.0", "1.9.0"),
        # The first installation.
        ("", "v1.7.2", "v1.7.2", "1.7.2"),
        # A vendor's build.
        ("sha256:0123", "sha256:0123", "v4.20.1-5", "1.6.6"),
        ("v4.21.0", "", "v1.0.0", "1.7.4"),
        ("sha256:0123", "sha256:0123", "v5.0.0-87", "1.9.0"),
        # An update from 4.22: what the operator of 5.0 installs is not there yet.
        ("v4.22.1", "v5.0.0", "v5.0.0", "1.8.4"),
        ("", "", "", None),
        ("devel", "devel", "devel", None),
    ],
)
def test_which_release_runs(observed: str, target: str, operator: str, found: str | None) -> None:
    detected = detect(observed, target, operator)
    assert (str(detected) if detected else None) == found


def test_known_versions_are_in_their_order_and_each_field_is_known_from_one_of_them_on() -> None:
    for field in FIELDS:
        assert field.since.line in {version.line for version in SUPPORTED_VERSIONS[1:]}, field.path
    assert unknown_fields(SUPPORTED_VERSIONS[-1], VMI) == frozenset()
    assert "serviceAccountName" in unknown_fields(SUPPORTED_VERSIONS[-2], VMI)
    assert len({(field.kind, field.path) for field in FIELDS}) == len(FIELDS)
    assert (list(SUPPORTED_VERSIONS), SUPPORTED_VERSIONS[-1]) == (sorted(SUPPORTED_VERSIONS), capabilities.NEWEST)
    assert len({version.line for version in SUPPORTED_VERSIONS}) == len(SUPPORTED_VERSIONS)


@pytest.mark.parametrize(
    ("gate", "said", "version", "is_opened"),
    [
        # What is open by default, from some release on, may be closed until it is always open.
        *(("ImageVolume", "", version, version != "1.8") for version in ("1.8", "1.9", "1.10")),
        ("ImageVolume", "disabled", "1.9", False),
        ("ImageVolume", "both", "1.9", True),
        ("ImageVolume", "enabled", "1.8", True),
        ("AlignCPUs", "", "1.9", False),
        *(("MigrationPriorityQueue", "", "1.8", False), ("MigrationPriorityQueue", "disabled", "1.9", True)),
        *(("DecentralizedLiveMigration", "", "1.9", False), ("DecentralizedLiveMigration", "", "1.10", True)),
        ("DecentralizedLiveMigration", "disabled", "1.10", False),
        *(("VmiMemoryOverheadReport", "disabled", version, version == "1.10") for version in ("1.9", "1.10")),
        *(("LibvirtHooksServerAndClient", "", version, version == "1.12") for version in ("1.9", "1.12")),
    ],
)
def test_gates(gate: str, said: str, version: str, is_opened: bool) -> None:
    enabled, disabled = ({gate} if said in (each, "both") else set() for each in ("enabled", "disabled"))
    assert is_open(release(version), gate, frozenset(enabled), frozenset(disabled)) is is_opened


@pytest.mark.parametrize(
    ("version", "kind", "path", "is_unknown"),
    [
        ("1.6", "VirtualMachineClusterPreference", "preferredArchitecture", True),
        ("1.7", "VirtualMachineClusterPreference", "preferredArchitecture", False),
        ("1.8", "VirtualMachineInstance", "networks.resourceClaim", True),
        ("1.8", "VirtualMachine", f"template.spec.{SERVICE_ACCOUNT}", True),
        ("1.8", "VirtualMachine", SERVICE_ACCOUNT, False),
        ("1.6", "ControllerRevision", "preferredArchitecture", False),
    ],
)
def test_fields_that_a_release_does_not_know(version: str, kind: str, path: str, is_unknown: bool) -> None:
    assert (path in unknown_fields(release(version).version, kind)) is is_unknown


@pytest.mark.parametrize(
    ("text", "version"),
    [
        *(("1.7", (1, 7, 4)), ("v1.7", (1, 7, 4)), ("v1.6.0", (1, 6, 0)), ("1.8.99", (1, 8, 99)), ("1.10", (1, 10, 0))),
        *(("v1.9.0-rc.1", (1, 9, 0)), ("v1.8.4-12-g0123abc", (1, 8, 4)), ("v1.6.2_build.7", (1, 6, 2))),
        ("v1.7.4+vendor.2", (1, 7, 4)),
        *(("1.5", (1, 5, 0)), ("4.20", (1, 6, 6)), ("v4.20.3", (1, 6, 6)), ("4.21.1-17", (1, 7, 4))),
        *(("4.18.2", (1, 4, 0)), ("4.2.1", (4, 2, 1)), ("4.22.1", (1, 8, 4)), ("4.23.0", (1, 9, 0))),
        *(("5.0", (1, 9, 0)), ("v5.0.3-87", (1, 9, 0)), ("5.1.0", (1, 10, 0)), ("6.0.0", (6, 0, 0))),
        *(
            (text, None)
            for text in ("", "v", "devel", "1", "1.", "1.x", "sha256:0123", "1.7.4 ", " 1.7", "1.7\n", "x1.7")
        ),
    ],
)
def test_versions(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == (Version(*version) if version else None)


@pytest.mark.parametrize(
    ("openshift", "support"),
    [("4.20.0", "known"), ("4.23.0", "known"), ("5.0.1", "known"), ("5.1.0", "newer"), ("4.19.1", "too-old")],
)
def test_versions_of_openshift_virtualization_have_the_support_of_their_kubevirt(openshift: str, support: str) -> None:
    detected = detect("", "", openshift)
    assert detected is not None
    assert detected.support == support


@given(st.text(alphabet="v0123456789.-+ae\n", max_size=12))
def test_whatever_is_written_is_a_version_or_none(text: str) -> None:
    version = parse_version(text)
    assert version is None or (version.line >= (0, 0) and parse_version(str(version)) is not None)
