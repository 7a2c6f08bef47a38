from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from hack import lock
from hack.image import assemble, base

ROOT = Path(__file__).parents[2]
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


class TestBase:
    def test_the_dockerfile_has_one_base_and_its_tag(self) -> None:
        name, digest = base.pinned((ROOT / "Dockerfile").read_text())

        assert name.startswith("python:3.")
        assert re.fullmatch("sha256:[0-9a-f]{64}", digest), "not pinned: run make base-image"
        stages = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("FROM ")]
        assert stages == ["FROM ${BASE} AS build", "FROM scratch"]


class TestAssemble:
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
