"""The files of a release, made from a tree of the source."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.bundle import files as bundle_files
from hack.release import ReleaseError, sbom
from hack.release.image import ReleaseImage, read_archive
from hack.release.version import CHANGELOG, chart_version, expected, notes, versions

OVERLAYS: Final = ("kubernetes", "openshift")
PROVENANCE: Final = "provenance.intoto.json"
CHECKSUMS: Final = "SHA256SUMS"
# Of Keep a Changelog, and of Artifact Hub.
_KINDS: Final = ("added", "changed", "deprecated", "removed", "fixed", "security")
_IMAGE_LINE: Final = re.compile(r"(?m)^(\s+(?:- )?image: )kubevirt-webhook:\S+$")


@dataclass(frozen=True)
class ReleaseBuild:
    """What a release is made of.

    Attributes:
        version: its version, which the files of the tree name too.
        epoch: the time of all its files, in seconds since 1970.
        source: the URI of the repository, and the commit.
        image: the image that the chart and the manifests name; None: neither is made.
        archive: the image as an OCI archive, for its bill of materials; None: there is none.
        builder: the URI of what makes the release.
    """

    version: str
    epoch: int
    source: tuple[str, str]
    image: ReleaseImage | None = None
    archive: Path | None = None
    builder: str = "https://kubevirt-webhook.github.io/release/local"


def build(tree: Path, release: ReleaseBuild) -> dict[str, bytes]:
    """All files of a release by name.

    Args:
        tree: the source, of which nothing but the given commit is in it.
        release: what it is made of.

    Raises:
        ReleaseError: the tree is of another version, or a part cannot be made.
    """
    if versions(tree) != expected(release.version):
        raise ReleaseError(
            f"the source is not of version {release.version}; run make release VERSION=... and commit first"
        )
    files = _distributions(tree, release)
    files["RELEASE_NOTES.md"] = notes((tree / CHANGELOG).read_text(), release.version).encode()
    lock = (tree / "requirements.lock").read_text()
    files[f"kubevirt-webhook-{release.version}.cdx.json"] = sbom.of_wheel(lock, release.version, release.epoch).encode()
    if release.image is not None:
        files |= _deployables(tree, release, release.image)
    files[PROVENANCE] = _provenance(files, release).encode()
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    files[CHECKSUMS] = sums.encode()
    return files


def _distributions(tree: Path, release: ReleaseBuild) -> dict[str, bytes]:
    """The wheel and the sdist."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch), "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "hatchling", "build", "-d", directory]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReleaseError(
                f"hatchling could not build: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}"
            )
        return {file.name: file.read_bytes() for file in sorted(Path(directory).iterdir())}


def _deployables(tree: Path, release: ReleaseBuild, image: ReleaseImage) -> dict[str, bytes]:
    """The chart and the manifests, with the image, and the image's bill of materials."""
    chart = tree / "charts" / "kubevirt-webhook"
    contents = {
        f"kubevirt-webhook/{file.relative_to(chart).as_posix()}": file.read_bytes()
        for file in sorted(chart.rglob("*"))
        if file.is_file()
    }
    values = "kubevirt-webhook/values.yaml"
    contents[values] = with_image(contents[values].decode(), image).encode()
    about = "kubevirt-webhook/Chart.yaml"
    contents[about] += _origin(release, image, notes((tree / CHANGELOG).read_text(), release.version)).encode()
    name = f"kubevirt-webhook-{chart_version(release.version)}.tgz"
    files = {name: tar_gz(contents, release.epoch)}
    # Without maintainers: those are the ones who offer it to a catalog, by make bundle.
    bundle = {name: text.encode() for name, text in bundle_files(str(image), {}, tree, release.version).items()}
    files[f"kubevirt-webhook-{chart_version(release.version)}-bundle.tar.gz"] = tar_gz(bundle, release.epoch)
    for overlay in OVERLAYS:
        text = (tree / "manifests" / "rendered" / f"{overlay}.yaml").read_text()
        rendered, count = _IMAGE_LINE.subn(rf"\g<1>{image}", text)
        if count != 1:
            raise ReleaseError(f"manifests/rendered/{overlay}.yaml names the image {count} times; it must be once")
        files[f"{overlay}.yaml"] = rendered.encode()
    if release.archive is not None:
        content = read_archive(release.archive)
        if content.digest != image.digest:
            raise ReleaseError(
                f"{release.archive} is the image {content.digest}, not {image.digest}; save the pushed one"
            )
        bill = sbom.of_image(content, image.repository, release.version, release.epoch)
        files["image.cdx.json"] = bill.encode()
    return files


def _origin(release: ReleaseBuild, image: ReleaseImage, changes: str) -> str:
    """The end of the release's Chart.yaml, whose last key is that of Artifact Hub's annotations."""
    listed = {"images": [{"name": "kubevirt-webhook", "image": str(image)}], "changes": list(_changes(changes))}
    annotations = "".join(
        f"  artifacthub.io/{key}: |\n" + "".join(f"    - {json.dumps(one)}\n" for one in ones)
        for key, ones in listed.items()
        if ones
    )
    return f"{annotations}sources: [{json.dumps(release.source[0].removeprefix('git+'))}]\n"


def _changes(section: str) -> Iterator[dict[str, str]]:
    """The lines of a changelog's section whose heading is a kind of change for Artifact Hub, too."""
    kind = ""
    for heading, line in re.findall(r"^### (.+)$|^- ((?:.+\n?)(?:  .+\n?)*)", section, re.MULTILINE):
        kind = heading.lower() or kind
        if line and kind in _KINDS:
            yield {"kind": kind, "description": " ".join(line.split())}


def with_image(values: str, image: ReleaseImage) -> str:
    """The chart's values with an image as default.

    Raises:
        ReleaseError: they have no place for it.
    """
    for key, value in (("repository", image.repository), ("digest", image.digest)):
        values, count = re.subn(rf'(?m)^  {key}: ""$', f'  {key}: "{value}"', values)
        if count != 1:
            raise ReleaseError(f"the chart's values have {count} empty image.{key}; there must be one")
    return values


def tar_gz(files: Mapping[str, bytes], epoch: int) -> bytes:
    """A compressed archive of contents by path; its bytes depend on these and on the time, since 1970, alone."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mtime, member.mode = len(files[path]), epoch, 0o644
            archive.addfile(member, io.BytesIO(files[path]))
    compressed = io.BytesIO()
    # Without a file's name in its header; level 9 is what gzip's own header then records.
    with gzip.GzipFile(filename="", fileobj=compressed, mode="wb", compresslevel=9, mtime=epoch) as stream:
        stream.write(plain.getvalue())
    return compressed.getvalue()


def _provenance(files: Mapping[str, bytes], release: ReleaseBuild) -> str:
    """How all files were made, as an in-toto statement with a predicate of SLSA; it is signed as a whole."""
    subjects: list[dict[str, Any]] = [
        {"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}} for name, data in sorted(files.items())
    ]
    parameters = {"version": release.version}
    if release.image is not None:
        digest = {"sha256": release.image.digest.removeprefix("sha256:")}
        subjects.append({"name": release.image.repository, "digest": digest})
        parameters["image"] = str(release.image)
    uri, commit = release.source
    definition = {
        "buildType": "https://kubevirt-webhook.github.io/release/v1",
        "externalParameters": parameters,
        "resolvedDependencies": [{"uri": uri, "digest": {"gitCommit": commit}}],
    }
    content = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": definition, "runDetails": {"builder": {"id": release.builder}}},
    }
    return json.dumps(content, indent=2) + "\n"
