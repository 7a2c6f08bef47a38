"""The browser of the tests, and axe-core for them: found or fetched, never committed."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from filelock import FileLock

from hack.controlplane.build import cache_root

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = "4.14.1"
# As the package registry states it; what is fetched is held to it.
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
_SCRIPT = "package/axe.min.js"
# Of rules whose violations keep people out.
SERIOUS = ("serious", "critical")


class BrowserMissingError(Exception):
    """There is no browser, or no axe-core, on this machine."""


def browser() -> str:
    """The path of Chromium, or a `BrowserMissingError`."""
    found = os.environ.get("CHROMIUM") or next((path for name in PROGRAMS if (path := shutil.which(name))), "")
    if not found:
        raise BrowserMissingError("Chromium is missing; on Debian install chromium, or set CHROMIUM=PATH")
    return found


def axe() -> str:
    """The source of axe-core, from the cache or the package registry; or a `BrowserMissingError`."""
    folder = cache_root(os.environ) / "axe-core"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"axe-{AXE}.min.js"
    with FileLock(folder / ".lock"):
        if not script.exists():
            script.write_text(_fetch())
    return script.read_text()


def _fetch() -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise BrowserMissingError("npm is missing, which fetches axe-core")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{AXE}", "--pack-destination", folder], capture_output=True, text=True
        )
        archives = [*Path(folder).glob("*.tgz")]
        if done.returncode or not archives:
            raise BrowserMissingError(f"axe-core cannot be fetched: {done.stderr.strip()[-300:]}")
        packed = archives[0].read_bytes()
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != AXE_SHA512:
        raise AssertionError("the archive of axe-core is not the one that is expected")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile(_SCRIPT)
        assert member
        return member.read().decode()


def violations(page: Any, source: str) -> list[str]:
    """What axe-core finds on a page: rule, and where."""
    page.evaluate(source)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']} ({each['impact']}): {', '.join(node['html'][:120] for node in each['nodes'][:3])}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]
