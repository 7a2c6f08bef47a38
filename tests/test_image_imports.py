"""The image lacks parts of the standard library and of the dependencies: nothing that it runs imports them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hack import lock
from hack.image import assemble

ROOT = Path(__file__).parents[1]
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


def test_no_module_imports_what_is_left_out() -> None:
    """It depends on the interpreter's standard library, so the image's own runs it, too: `make interpreters`."""
    packages = [name.replace("-", "_").removesuffix("_py") for name in lock.NOT_IN_IMAGE]
    left_out = [*(name.removesuffix(".py") for name in assemble.LEFT_OUT), *packages]
    command = [sys.executable, "-c", IMPORTS, ",".join(left_out)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == []
