from __future__ import annotations

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


def test_the_dockerfile_has_one_pinned_base_and_what_the_build_reads() -> None:
    text = (ROOT / "Dockerfile").read_text()
    name, digest = base.pinned(text)

    assert name.startswith("python:3.")
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest), "not pinned: run make base-image"
    stages = [line for line in text.splitlines() if line.startswith("FROM ")]
    assert stages == ["FROM ${BASE} AS build", "FROM scratch"]
    assert "requirements-dev" not in text
    assert not {"apt-get", "gcc", "curl"} & set(text.split())
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for file in ("requirements-image.lock", "requirements-build.lock", "hack/image/assemble.py"):
        assert file in text
        assert (ROOT / file).exists()
        assert file not in ignored


def test_no_module_imports_what_is_left_out() -> None:
    packages = [name.replace("-", "_").removesuffix("_py") for name in lock.NOT_IN_IMAGE]
    left_out = [*(name.removesuffix(".py") for name in assemble.LEFT_OUT), *packages]
    command = [sys.executable, "-c", IMPORTS, ",".join(left_out)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == []


def test_assembling_needs_nothing_but_the_standard_library() -> None:
    """It runs in the build stage, where this project is not installed."""
    program = str(ROOT / "hack" / "image" / "assemble.py")
    command = [sys.executable, "-I", "-S", program, "--compile", "/nowhere"]
    assert b"ModuleNotFoundError" not in subprocess.run(command, check=False, capture_output=True).stderr
