"""A release of the working tree: the same bytes twice, with the image in it, and as Helm and pip read it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from hack.release import ReleaseError
from hack.release.build import CHECKSUMS, PROVENANCE, ReleaseBuild, build
from hack.release.image import ReleaseImage, parse_image
from hack.release.version import CHANGELOG, expected, notes, prepare, versions
from webhook import __version__
from webhook.settings_file import default_settings, load

ROOT = Path(__file__).resolve().parents[2]
VERSION = "9.8.7"
WHEEL, CHART = f"kubevirt_webhook-{VERSION}-py3-none-any.whl", f"kubevirt-webhook-{VERSION}.tgz"
WHEEL_BILL, BUNDLE = f"kubevirt-webhook-{VERSION}.cdx.json", f"kubevirt-webhook-{VERSION}-bundle.tar.gz"
Archive = tuple[Path, ReleaseImage]


def tree(directory: Path) -> Path:
    """The working tree as its commit would be, cut for the release."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, directory / name)
    changelog = directory / CHANGELOG
    if "## [Unreleased]\n\n## " in changelog.read_text():
        change = "### Added\n\n- A change,\n  in two lines.\n- Two.\n\n### Known limits\n\n- None."
        text = changelog.read_text().replace("## [Unreleased]\n", f"## [Unreleased]\n\n{change}\n", 1)
        changelog.write_text(text)
    prepare(directory, VERSION, "2026-11-22")
    return directory


_PACKAGES = "app/lib/python3.13/site-packages"
_FILES = {
    f"{_PACKAGES}/aiohttp-3.dist-info/METADATA": b"Name: aiohttp\nVersion: 3.14.5\n"
    b"Requires-Dist: typing_extensions>=4; python_version < '3.14'\nRequires-Dist: Left_Out>=1\n"
    b"Requires-Dist: brotli; extra == 'speedups'\nRequires-Dist: old; python_version < '3.13'\n\nText\n",
    f"{_PACKAGES}/te.dist-info/METADATA": b"Name: typing_extensions\nVersion: 4.1\n",
    "usr/lib/libc.so.6": b"libc",
    "usr/local/bin/python3.13": b"python",
    "etc/passwd": b"nobody",
}


def _tar(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _descriptor(data: bytes) -> dict[str, object]:
    return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def oci_archive(file: Path) -> str:
    """Writes the archive; returns the digest of its manifest."""
    layer = _tar(_FILES)
    manifest = json.dumps({"schemaVersion": 2, "layers": [_descriptor(layer)]}).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [_descriptor(manifest)]}).encode()
    blobs = {f"blobs/{str(_descriptor(data)['digest']).replace(':', '/')}": data for data in (layer, manifest)}
    file.write_bytes(_tar({"index.json": index, **blobs}))
    return str(_descriptor(manifest)["digest"])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    file = tmp_path_factory.mktemp("image") / "image.tar"
    return file, ReleaseImage("registry.example:5000/kubevirt-webhook", oci_archive(file))


def release(archive: Archive) -> ReleaseBuild:
    file, image = archive
    return ReleaseBuild(VERSION, 1_790_000_000, ("git+https://git.example/kubevirt-webhook", "c" * 40), image, file)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def files(source: Path, archive: Archive) -> dict[str, bytes]:
    return build(source, release(archive))


@pytest.mark.control("replaced-releases")
def test_built_twice_it_is_the_same(
    files: dict[str, bytes], archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In another place, with files that are newer, in another time zone and language.
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "C")
    again = build(tree(tmp_path / "another" / "place"), release(archive))

    assert {name for name in files if files[name] != again.get(name)} == set()
    bills = {WHEEL_BILL, "image.cdx.json"}
    texts = {"kubernetes.yaml", "openshift.yaml", "RELEASE_NOTES.md", PROVENANCE, CHECKSUMS}
    assert again.keys() == files.keys() == {WHEEL, CHART, BUNDLE, f"kubevirt_webhook-{VERSION}.tar.gz", *bills, *texts}


def test_checksums_and_provenance_are_of_all_files(files: dict[str, bytes], archive: Archive, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(["sha256sum", "--check", "--strict", CHECKSUMS], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, len(files) - 1)

    said = json.loads(files[PROVENANCE])
    made = {name: hashlib.sha256(files[name]).hexdigest() for name in files.keys() - {PROVENANCE, CHECKSUMS}}
    made[archive[1].repository] = archive[1].digest.removeprefix("sha256:")
    assert {one["name"]: one["digest"]["sha256"] for one in said["subject"]} == made
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    definition = said["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"version": VERSION, "image": str(archive[1])}
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "c" * 40}


def test_manifests_and_chart_name_the_image_by_its_digest(files: dict[str, bytes], archive: Archive) -> None:
    image = archive[1]
    for overlay in ("kubernetes", "openshift"):
        (deployment,) = (one for one in yaml.safe_load_all(files[f"{overlay}.yaml"]) if one["kind"] == "Deployment")
        assert [one["image"] for one in deployment["spec"]["template"]["spec"]["containers"]] == [str(image)]
    with tarfile.open(fileobj=io.BytesIO(files[CHART])) as chart:
        names = chart.getnames()
        about, values = (
            yaml.safe_load(chart.extractfile(f"kubevirt-webhook/{name}"))  # type: ignore[arg-type]
            for name in ("Chart.yaml", "values.yaml")
        )

    assert "kubevirt-webhook/templates/webhooks.yaml" in names
    assert (about["version"], about["appVersion"]) == (VERSION, VERSION)
    assert about["sources"] == ["https://git.example/kubevirt-webhook"]
    assert {"home", "maintainers", "description", "kubeVersion", "keywords"} <= about.keys()
    icon = (ROOT / "docs" / "images" / "icon.svg").read_bytes()
    assert about["icon"] == f"data:image/svg+xml;base64,{base64.b64encode(icon).decode()}"
    changes = yaml.safe_load(about["annotations"]["artifacthub.io/changes"])
    assert {one["kind"] for one in changes} <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    listed = re.split("^### Known limits$", files["RELEASE_NOTES.md"].decode(), flags=re.MULTILINE)[0]
    assert len(changes) == len(re.findall("^- ", listed, re.MULTILINE)) > 1
    (listed,) = yaml.safe_load(about["annotations"]["artifacthub.io/images"])
    assert listed == {"name": "kubevirt-webhook", "image": str(image)}
    assert all({"name", "url"} == link.keys() for link in yaml.safe_load(about["annotations"]["artifacthub.io/links"]))
    assert (values["image"]["repository"], values["image"]["digest"]) == (image.repository, image.digest)


def test_the_bundle_is_of_this_version_and_image(files: dict[str, bytes], archive: Archive) -> None:
    with tarfile.open(fileobj=io.BytesIO(files[BUNDLE])) as bundle:
        assert {"bundle.Dockerfile", "metadata/annotations.yaml"} < {*bundle.getnames()}
        file = bundle.extractfile("manifests/kubevirt-webhook.clusterserviceversion.yaml")
        csv = yaml.safe_load(file)  # type: ignore[arg-type]
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == str(archive[1])
    assert (csv["metadata"]["name"], csv["spec"]["version"]) == (f"kubevirt-webhook.v{VERSION}", VERSION)


def bill_of(files: dict[str, bytes], name: str) -> Any:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(files[name].decode()) is None
    return json.loads(files[name])


def test_the_bill_of_the_wheel_is_the_lock(files: dict[str, bytes]) -> None:
    bill = bill_of(files, WHEEL_BILL)
    locked = re.findall(r"^([^\s=]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)

    assert bill["metadata"]["component"]["version"] == VERSION
    assert {one["name"]: one["version"] for one in bill["components"]} == dict(locked)
    for one in bill["components"]:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert one["hashes"]


def test_the_bill_of_the_image_is_its_archive(files: dict[str, bytes], archive: Archive) -> None:
    bill = bill_of(files, "image.cdx.json")

    assert bill["metadata"]["component"]["bom-ref"] == str(archive[1])
    assert {one["name"]: (one["type"], one.get("properties")) for one in bill["components"]} == {
        "aiohttp": ("library", [{"name": "kubevirt-webhook:left-out", "value": "left-out"}]),
        "typing-extensions": ("library", None),
        "usr/lib/libc.so.6": ("file", None),
        "usr/local/bin/python3.13": ("file", None),
    }


@pytest.mark.control("replaced-releases")
def test_another_image_than_the_archive_is_refused(
    source: Path, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a tree of another version."""
    monkeypatch.setattr("hack.release.build._distributions", lambda *_: {})
    other = ReleaseImage(archive[1].repository, f"sha256:{'0' * 64}")
    with pytest.raises(ReleaseError, match="not sha256:000"):
        build(source, release((archive[0], other)))
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, tmp_path / name)
    (tmp_path / "webhook" / "__init__.py").write_text('__version__ = "1.0.0"\n')
    with pytest.raises(ReleaseError, match="not of version"):
        build(tmp_path, release(archive))


@pytest.fixture(scope="module")
def unpacked(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip installs it, and beside it nothing of the repository."""
    directory = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(io.BytesIO(files[WHEEL])) as wheel:
        wheel.extractall(directory)
    return directory


def command(unpacked: Path, *arguments: str | Path) -> str:
    """What a command prints in a directory without anything, whatever its exit status."""
    (empty := unpacked / "elsewhere").mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(empty), "PYTHONPATH": str(unpacked), "COLUMNS": "200"}
    program = [sys.executable, "-c", "from webhook.cli.main import main; main()", *map(str, arguments)]
    done = subprocess.run(program, cwd=empty, env=environ, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_the_demo_of_a_wheel_advises_what_can_be_run_there(unpacked: Path) -> None:
    said = command(unpacked, "demo")

    assert "23 as expected, 0 different" in said
    advised = {Path(path) for path in re.findall(rf"{unpacked}\S+", said)}
    examples = unpacked / "webhook" / "_data" / "examples"
    assert {examples / "cluster", examples / "settings.yaml", examples / "vms"} == advised
    assert all(path.exists() for path in advised)
    assert "make " not in said
    assert ", 0 failed" in command(unpacked, "test", examples)


def test_every_command_of_a_wheel_works_or_names_what_it_needs(unpacked: Path) -> None:
    assert "name another with --kubeconfig" in command(unpacked, "serve")
    assert "name another with --kubeconfig" in command(unpacked, "install", "--image", "x")
    assert "kubevirt-webhook test --record" in command(unpacked, "test", "../webhook/_data/examples/vms")
    assert "kind: ValidatingAdmissionPolicy" in command(unpacked, "manifests", "policies")
    assert "kind: KubeSchedulerConfiguration" in command(unpacked, "scheduler", "render", "pack")


FILES = [
    *("pyproject.toml", "webhook/__init__.py", "charts/kubevirt-webhook/Chart.yaml"),
    "manifests/overlays/kubernetes/webhooks.yaml",
]


def test_images_are_named_by_digest() -> None:
    digest = f"sha256:{'a' * 64}"

    assert str(parse_image(f"registry.example:5000/a/b@{digest}")) == f"registry.example:5000/a/b@{digest}"
    for wrong in ("a/b:1", f"a/b:1@{digest}", f"@{digest}", "a/b@sha256:1", f"a b@{digest}", f"a/b/@{digest}"):
        with pytest.raises(ReleaseError):
            parse_image(wrong)


def test_a_release_is_prepared_in_all_its_files(tmp_path: Path) -> None:
    assert versions(ROOT) == expected(__version__)
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n\n## [0.1.0] - 2026-01-01\n\n- Zero.\n"
    )

    changed = prepare(tmp_path, "0.2.0rc1", "2026-11-22")

    assert versions(tmp_path) == expected("0.2.0rc1")
    assert notes(changelog.read_text(), "0.2.0rc1") == "### Added\n\n- One.\n"
    assert load(tmp_path / "tests" / "skew" / "0.2.0rc1" / "settings.yaml").server == default_settings().server
    # In the tree of the release, everything is of a release.
    page = (tmp_path / "docs" / "reference" / "labels.md").read_text()
    assert "| 0.2.0rc1 |" in page
    assert "| unreleased |" not in page
    assert all((tmp_path / name).exists() for name in changed)
