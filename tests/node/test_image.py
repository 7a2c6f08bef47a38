"""The content of the image, read from its archive."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "installation.md"


class BuiltImage:
    def __init__(self, file: Path) -> None:
        with tarfile.open(file) as archive:
            self._blobs = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            self._read = {name: blob.read() for name, blob in self._blobs.items() if blob}
        index = json.loads(self._read["index.json"])
        self.manifest = self._json(index["manifests"][0]["digest"])
        self.config = self._json(self.manifest["config"]["digest"])

    def layers(self) -> Iterator[tarfile.TarFile]:
        """Its layers, the lowest first."""
        for layer in self.manifest["layers"]:
            data = self._blob(layer["digest"])
            if layer["mediaType"].endswith("gzip"):
                data = gzip.decompress(data)
            with tarfile.open(fileobj=io.BytesIO(data)) as opened:
                yield opened

    def _blob(self, digest: str) -> bytes:
        return self._read[f"blobs/{digest.replace(':', '/')}"]

    def _json(self, digest: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._blob(digest))
        return found


@pytest.fixture(scope="module")
def image() -> BuiltImage:
    return BuiltImage(Path(os.environ["NODE_IMAGES"]) / "kubevirt-webhook.tar")


@pytest.fixture(scope="module")
def members(image: BuiltImage) -> list[list[tarfile.TarInfo]]:
    return [layer.getmembers() for layer in image.layers()]


def test_the_layers_have_the_sizes_on_the_page(members: list[list[tarfile.TarInfo]]) -> None:
    text = PAGE.read_text().partition("| Layer | MB for amd64 |")[2]
    written = [int(size) for size in re.findall(r"^\| [a-z-]+ \| (\d+) \|", text, re.MULTILINE)]
    (total,) = re.findall(r"builds an image of some (\d+) MB", PAGE.read_text())

    sizes = [sum(member.size for member in layer) / 1e6 for layer in members]
    assert written == [pytest.approx(size, rel=0.1, abs=1) for size in sizes]
    assert int(total) == pytest.approx(sum(sizes), rel=0.1)


def test_interpreter_dependencies_and_program_are_layers_of_their_own(members: list[list[tarfile.TarInfo]]) -> None:
    interpreter, dependencies, program = ({member.name.strip("/") for member in layer} for layer in members)

    assert any(name.endswith("/asyncio/__init__.py") for name in interpreter)
    assert any(name.endswith("/site-packages/aiohttp/__init__.py") for name in dependencies)
    assert any(name.endswith("/site-packages/webhook/__init__.py") for name in program)
    assert not any("/site-packages/webhook/" in name for name in (*interpreter, *dependencies))


def test_there_is_no_shell_and_no_package_manager(members: list[list[tarfile.TarInfo]]) -> None:
    names = {part for layer in members for member in layer for part in Path(member.name).parts}

    assert "kubevirt-webhook" in names
    absent = {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "pip", "pip3", "gcc", "perl", "ensurepip"}
    assert not names & {*absent, "pytest", "mypy"}


def test_every_module_is_compiled(members: list[list[tarfile.TarInfo]]) -> None:
    paths = [Path(member.name) for layer in members for member in layer]
    sources = [path for path in paths if path.suffix == ".py" and "_data" not in path.parts]
    compiled = {path.parent.parent / path.name.partition(".")[0] for path in paths if path.suffix == ".pyc"}

    assert len(sources) > 500
    assert [source for source in sources if source.with_suffix("") not in compiled] == []


def test_labels_user_and_command(image: BuiltImage) -> None:
    config = image.config["config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}

    assert {"title", "description", "licenses", "version", "revision", "base.name"} <= labels.keys()
    assert labels["version"] == "e2e"
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["/app/bin/kubevirt-webhook"])
    assert config["Cmd"] == ["serve"]
