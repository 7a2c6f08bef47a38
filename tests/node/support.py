"""The cluster of a node, the program as an admin runs it, and VMs that are created meanwhile."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

from hack.node.cluster import NodeCluster
from tests.e2e.support.access import Access
from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.manifests import kustomization
from tests.e2e.support.objects import ensure_namespace, has_condition
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.repeated import Repeated
from tests.e2e.support.workloads import VMS, scheduler_of, vm

PLACE = "NODE_DIRECTORY"
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "kubevirt-webhook"
CONFIGURATIONS = tuple(
    (f"admissionregistration.k8s.io/v1/{kind}webhookconfigurations", name)
    for kind, name in (("mutating", NAMESPACE), ("mutating", f"zz-{NAMESPACE}"), ("validating", NAMESPACE))
)
SHOP = "shop"
LABEL = "kubevirt-webhook.github.io/scheduling"
IMAGE = "localhost/kubevirt-webhook:one"
UPGRADED = "localhost/kubevirt-webhook:two"
MISSING = "localhost/kubevirt-webhook:missing"
SETTINGS: Json = {
    "kubevirt": {"namespace": "kubevirt"},
    "schedulers": {"kubevirt": {"healthCheck": "off"}},
    "server": {"shutdownSeconds": 5},
}
SELECTOR = f"app.kubernetes.io/name={NAMESPACE}"
USER = 65532
# Of a replica beside the installation, which no API server calls.
SELF_SIGNED = "--tls=self-signed"


class NodeInstallation(Access):
    def __init__(self, directory: Path, binaries: Path) -> None:
        super().__init__(directory, f"https://{NodeCluster.ADDRESSES[0]}:{NodeCluster.PORT}", binaries)
        self.settings = directory / "settings.yaml"
        self.settings.write_text(json.dumps(SETTINGS))

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "webhook", *map(str, arguments), f"--kubeconfig={self.kubeconfig_for(*ADMIN)}"]

    def run(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=280, check=False
        )
        assert "Traceback" not in done.stderr
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def install(self, image: str = IMAGE, *more: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = self.run("install", f"--config={self.settings}", f"--image={image}", *more, check=False)
        assert not check or done.returncode == 0, done.stdout + done.stderr + self._last_words()
        return done

    def _last_words(self) -> str:
        """What replicas that have ended wrote last, which nobody can ask for once the nodes are gone."""
        logs = ("logs", f"--selector={SELECTOR}", "--previous", "--tail=30")
        return self.kubectl("-n", NAMESPACE, *logs, check=False).stdout

    def offer_namespace(self) -> None:
        """A namespace that has opted in; returns once both replicas are ready, and its VMs are changed."""
        self.wait_ready()
        ensure_namespace(self.admin, SHOP)
        self.admin.patch("v1/namespaces", SHOP, {"metadata": {"labels": {LABEL: "enforce"}}})
        eventually(lambda: self.try_vm() == "kubevirt", what="VMs to be given the scheduler kubevirt")

    def try_vm(self) -> str | None:
        """The scheduler that a new VM is given; the VM is not kept."""
        return scheduler_of(self.admin.create(VMS, vm("probe"), SHOP, dryRun="All"))

    def pods(self) -> list[KubeObject]:
        found = self.admin.list("v1/pods", NAMESPACE, labelSelector=SELECTOR)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready_pods(self) -> list[KubeObject]:
        return [pod for pod in self.pods() if has_condition(pod, "Ready")]

    def wait_ready(self, number: int = 2) -> None:
        """Wait until so many replicas are ready, and no others exist."""

        def are_ready() -> bool:
            there = self.admin.list("v1/pods", NAMESPACE, labelSelector=SELECTOR)
            return len(self.ready_pods()) == number == len(there)

        eventually(are_ready, what=f"{number} replicas to be ready", timeout=120)

    def apply(self, directory: Path, *components: str, settings: Json = SETTINGS) -> None:
        """Apply an admin's kustomization; returns once the rollout is complete, and fails with what the pods say."""
        written = kustomization(directory, "kubernetes", *components, image=IMAGE, settings=settings)
        self.kubectl("apply", "--server-side", "-k", written, timeout=100)
        rollout = ("-n", NAMESPACE, "rollout", "status", f"deployment/{NAMESPACE}", "--timeout=130s")
        done = self.kubectl(*rollout, check=False, timeout=140)
        assert done.returncode == 0, done.stderr + self.kubectl("-n", NAMESPACE, "describe", "pods", check=False).stdout

    def is_trusted(self) -> bool:
        """Whether all webhook configurations exist, and all of their entries have a caBundle."""
        return all(entry["clientConfig"].get("caBundle") for entry in self.entries())

    def entries(self) -> list[Json]:
        return [entry for where in CONFIGURATIONS for entry in self.admin.get(*where)["webhooks"]]

    def logs(self, word: str) -> list[str]:
        """The lines with a word in the logs of the replicas."""
        names = [pod["metadata"]["name"] for pod in self.pods()]
        logs = (self.kubectl("-n", NAMESPACE, "logs", name, check=False).stdout for name in names)
        return [line for log in logs for line in log.splitlines() if word in line]

    def remove_everything(self) -> None:
        """Delete what was installed, by whatever tool; nothing calls replicas before they end."""
        for kind in ("mutating", "validating"):
            names = (NAMESPACE, f"zz-{NAMESPACE}")
            self.kubectl("delete", f"{kind}webhookconfiguration", *names, "--ignore-not-found")
        self.run("uninstall")

    def images(self) -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in self.pods()}


class NodeReviews(Repeated):
    """Creates VMs one after the other, as a dry run, which calls webhooks as a request that is kept does."""

    PAUSE_SECONDS = 0.01

    def __init__(self, installation: NodeInstallation) -> None:
        super().__init__()
        self._installation = installation
        self.created = 0
        self.denied: list[str] = []
        self.unchanged = 0

    def step(self) -> None:
        try:
            scheduler = self._installation.try_vm()
        except KubeError as error:
            self.denied.append(str(error))
            return
        self.created += 1
        self.unchanged += scheduler != "kubevirt"

    def more(self, number: int = 20) -> None:
        before = self.created
        eventually(lambda: self.created >= before + number, what="VMs to be created", timeout=120)


def servers(tls: str = "") -> list[int]:
    """The process ids of the replicas' programs that are started with an option; empty: of those of an installation."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_text().split("\0")
            chosen = tls in words if tls else SELF_SIGNED not in words
            if "/app/bin/kubevirt-webhook" in words[:2] and "serve" in words and chosen:
                found.append(int(file.parent.name))
    return found


def status_of(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def accepts(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=5):
        return True
    return False
