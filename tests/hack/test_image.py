from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from hack import lock
from hack.image import assemble, base

ROOT = Path(__file__).parents[2]
DIGEST = f"sha256:{'0' * 63}1"
# Prints the modules of the program that cannot be imported in the image.
IMPORTS = """
import importlib, pkgutil, sys
from fnmatch import fnmatch
patterns = sys.argv[1].split(",")
class LeftOut:
    def find_spec(self, name, path=None, target=None):
        if any(fnmatch(name.partition(".")[0], pattern) for pattern in patterns):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, LeftOut())
import certs, webhook
for package in (certs, webhook):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                print(module.name, error)
"""
LDD = """\
\tlinux-vdso.so.1 (0x00007ffd)
\tlibssl.so.3 => /lib/x86_64-linux-gnu/libssl.so.3 (0x00007f01)
\tlibmissing.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)
"""


def tool(directory: Path, name: str, output: str, status: int = 0) -> str:
    program = directory / name
    program.write_text(f"#!/bin/sh\necho \"$@\" > {directory}/asked\nprintf '%s' '{output}'\nexit {status}\n")
    program.chmod(0o755)
    return str(directory)


class TestBase:
    def test_the_dockerfile_has_one_base_and_its_tag(self) -> None:
        name, digest = base.pinned((ROOT / "Dockerfile").read_text())

        assert name.startswith("python:3.")
        assert re.fullmatch("sha256:[0-9a-f]{64}", digest), "not pinned: run make base-image"
        stages = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("FROM ")]
        assert stages == ["FROM ${BASE} AS build", "FROM scratch"]

    @pytest.mark.parametrize("before", ["", f"@sha256:{'f' * 64}"])
    def test_renewing_changes_the_digest_alone(self, before: str) -> None:
        text = f"# why\nARG BASE=python:3.13-slim{before}\nFROM ${{BASE}} AS build\n"

        renewed = base.renew(text, DIGEST)
        assert base.pinned(renewed) == ("python:3.13-slim", DIGEST)
        assert renewed.replace(f"@{DIGEST}", before) == text

    @pytest.mark.parametrize("name", ["crane", "docker"])
    def test_tools_print_the_digest(self, name: str, tmp_path: Path) -> None:
        path = tool(tmp_path, name, DIGEST)
        assert base.resolve("python:3.13", path) == DIGEST
        assert "python:3.13" in (tmp_path / "asked").read_text()

    def test_skopeos_is_that_of_the_index_not_of_this_platform(self, tmp_path: Path) -> None:
        index = f"sha256:{sha256(b'{}').hexdigest()}"
        path = tool(tmp_path, "skopeo", "{}")
        assert base.resolve("python:3.13", path) == index
        assert "--raw" in (tmp_path / "asked").read_text()

    @pytest.mark.parametrize(("output", "status"), [("nonsense", 0), ("", 1)])
    def test_nothing_is_made_up(self, output: str, status: int, tmp_path: Path) -> None:
        path = tool(tmp_path, "crane", output, status)
        with pytest.raises(base.BaseImageError):
            base.resolve("python:3.13", path)

    def test_without_a_tool(self, tmp_path: Path) -> None:
        with pytest.raises(base.BaseImageError, match="crane, skopeo, docker"):
            base.resolve("python:3.13", str(tmp_path))
        with pytest.raises(base.BaseImageError, match="ARG BASE"):
            base.pinned("FROM scratch\n")


class TestAssemble:
    def test_libraries_by_the_names_that_the_loader_looks_for(self) -> None:
        assert assemble.parse_ldd(LDD) == {
            Path("/lib/x86_64-linux-gnu/libssl.so.3"),
            Path("/lib64/ld-linux-x86-64.so.2"),
        }

    def test_bytecode_is_taken_as_it_is_and_names_no_build_directory(self, tmp_path: Path) -> None:
        (tmp_path / "app").mkdir()
        source = tmp_path / "app" / "module.py"
        source.write_text("def fail():\n    raise ValueError\n")

        assemble.compile_all(tmp_path, tmp_path)

        cached = Path(importlib.util.cache_from_source(str(source)))
        content = cached.read_bytes()
        assert int.from_bytes(content[4:8], "little") == 0b01, "by the hash of the source, which is not checked"
        assert str(tmp_path).encode() not in content
        assemble.compile_all(tmp_path, tmp_path)
        assert cached.read_bytes() == content

    def test_what_does_not_compile_fails_the_build(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "broken.py").write_text("def\n")
        with pytest.raises(SystemExit, match="could be compiled"):
            assemble.compile_all(tmp_path, tmp_path)
        capsys.readouterr()

    def test_no_module_imports_what_is_left_out_but_the_one_that_reads_kubeconfigs(self) -> None:
        packages = [name.replace("-", "_").removesuffix("_py") for name in lock.NOT_IN_IMAGE]
        left_out = [*(name.removesuffix(".py") for name in assemble.LEFT_OUT), *packages]

        done = subprocess.run(
            [sys.executable, "-c", IMPORTS, ",".join(left_out)], cwd=ROOT, capture_output=True, text=True, check=True
        )

        assert done.stdout.splitlines() == ["webhook.k8s.client.kubeconfig kubernetes_asyncio"]

    def test_it_needs_nothing_but_the_standard_library(self) -> None:
        """It runs in the build stage, where this project is not installed."""
        file = ROOT / "hack" / "image" / "assemble.py"
        done = subprocess.run(
            [sys.executable, "-I", "-S", file, "--compile", "/nowhere"], check=False, capture_output=True
        )
        assert b"ModuleNotFoundError" not in done.stderr


def test_the_dockerfile_has_what_the_build_reads() -> None:
    text = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert "requirements-dev" not in text
    assert not {"apt-get", "gcc", "curl"} & set(text.split())
    for name in ("requirements-image.lock", "requirements-build.lock", "hack/image/assemble.py"):
        assert name in text
        assert (ROOT / name).exists()
        assert name not in ignored
