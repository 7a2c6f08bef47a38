"""The chart, rendered and installed by the real Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .kube import PATIENCE, Json
from .manifests import parse
from .processes import GARBAGE, ROOT

CHART = ROOT / "charts" / "kubevirt-webhook"
IMAGE = {"repository": "registry.example/kubevirt-webhook", "tag": "1"}


def is_of_a_test(one: Json) -> bool:
    """Whether an object exists only while `helm test` runs."""
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


class Helm:
    """The program, with a directory for what it keeps; without a kubeconfig only what needs none works."""

    def __init__(self, program: Path, directory: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._directory = directory
        self._kubeconfig = kubeconfig

    def run(self, *arguments: str | Path, values: Mapping[str, Any] | None = None, check: bool = True) -> str:
        command = [str(self._program), "--namespace=kubevirt-webhook", *map(str, arguments)]
        if values is not None:
            file = self._directory / "values.json"
            file.write_text(json.dumps(values))
            command.append(f"--values={file}")
        home = {"HOME": str(self._directory), **GARBAGE} | {
            f"HELM_{name}_HOME": str(self._directory / name.lower()) for name in ("CACHE", "CONFIG", "DATA")
        }
        if self._kubeconfig:
            home["KUBECONFIG"] = str(self._kubeconfig)
        done = subprocess.run(command, capture_output=True, text=True, env=home, timeout=PATIENCE)
        said = done.stdout + done.stderr
        assert (done.returncode == 0) is check, said
        return said if not check else done.stdout

    def template(self, values: Mapping[str, Any] | None = None, *options: str) -> list[Json]:
        given = {"image": IMAGE, **(values or {})}
        made = self.run("template", "kubevirt-webhook", CHART, *options, values=given)
        return [document for document in parse(made) if document]

    def refusal(self, values: Mapping[str, Any], *options: str) -> str:
        return self.run("template", "kubevirt-webhook", CHART, *options, values=values, check=False)
