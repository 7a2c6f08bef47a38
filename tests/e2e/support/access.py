"""How to reach a control plane that runs: as whom one likes, from any process that can read its directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from .kube import PATIENCE, Kube
from .objects import obj
from .pki import ADMIN, KUBEVIRT_CONTROLLER, Pki
from .processes import GARBAGE


class Access:
    """A plane's address and certificates, and nothing that could stop it: what tests of the shared plane get."""

    def __init__(self, directory: Path, server: str, binaries: Path) -> None:
        self.directory = directory
        self.server = server
        self.binaries = binaries
        self.pki = Pki(directory / "pki")

    @cached_property
    def admin(self) -> Kube:
        return self.kube(*ADMIN)

    @cached_property
    def kubevirt_controller(self) -> Kube:
        return self.kube(*KUBEVIRT_CONTROLLER)

    def kube(self, user: str, groups: Iterable[str] = ()) -> Kube:
        return Kube(self.server, self.pki.ca, self.pki.client(user, groups), user)

    def token(self, namespace: str, name: str, **spec: Any) -> str:
        """A token of a service account, by default as a pod has one; makes the account where there is none."""
        self.admin.apply(obj("ServiceAccount", name, namespace=namespace))
        asked = obj("TokenRequest", spec=spec)
        made = self.admin.create("v1/serviceaccounts", asked, namespace, name=name, subresource="token")
        return str(made["status"]["token"])

    def service_account(self, namespace: str, name: str) -> Kube:
        """A client with such a token."""
        return Kube(self.server, self.pki.ca, None, f"{namespace}/{name}", token=self.token(namespace, name))

    def kubeconfig_for(self, user: str, groups: Iterable[str] = ()) -> Path:
        return self.pki.kubeconfig(self.server, user, groups)

    def has(self, binary: str) -> bool:
        return os.access(self.binaries / binary, os.X_OK)

    def kubectl(
        self, *arguments: str, stdin: str = "", check: bool = True, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the admin; with ``check``, a failure raises and says what kubectl said."""
        done = subprocess.run(
            [
                self._kubectl(),
                f"--kubeconfig={self.kubeconfig_for(*ADMIN)}",
                # By default it is shared and keyed by address, which a later plane may have too.
                f"--cache-dir={self.directory / 'kubectl-cache'}",
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=GARBAGE | os.environ,
            check=False,
        )
        # What its client logs while an API server is slow is no answer.
        done.stderr = re.sub(r"^[IWE]\d{4} .*\n", "", done.stderr, flags=re.MULTILINE)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)} exited {done.returncode}: {done.stderr.strip()}")
        return done

    def _kubectl(self) -> str:
        if self.has("kubectl"):
            return str(self.binaries / "kubectl")
        if found := shutil.which("kubectl"):
            return found
        raise AssertionError(f"no kubectl in {self.binaries} nor in PATH; unset KUBEBUILDER_ASSETS to have one built")
