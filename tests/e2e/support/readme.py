"""The section of README on installing: its commands and its kustomization, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .access import Access
from .pki import ADMIN
from .processes import ROOT

_SECTION = re.search(r"^## Install\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
assert _SECTION
_BLOCKS: dict[str, str] = dict(re.findall(r"^```(yaml|console)\n(.*?)^```$", _SECTION[1], re.MULTILINE | re.DOTALL))
COMMANDS = [command.removeprefix("$ ") for command in re.split(r"\n(?=\$ )", _BLOCKS["console"].strip())]


def with_image(text: str, repository: str, digest: str) -> str:
    """A text of the section with an image; nothing else is put in."""
    return text.replace("REGISTRY/kubevirt-webhook", repository).replace("sha256:DIGEST", digest)


def run(access: Access, directory: Path, command: str, repository: str, digest: str, helm: Path) -> None:
    """Run a command as a reader does, in an empty directory with what the section names; it has to succeed."""
    for name in ("manifests", "charts"):
        shutil.copytree(ROOT / name, directory / name)
    (directory / "kustomization.yaml").write_text(with_image(_BLOCKS["yaml"], repository, digest))
    programs = (helm, access.binaries, Path(sys.executable).parent)
    environ = {
        **os.environ,
        "HOME": str(directory),
        "KUBECONFIG": str(access.kubeconfig_for(*ADMIN)),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
    }
    line = ["bash", "-c", with_image(command, repository, digest)]
    done = subprocess.run(
        line, cwd=directory, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
