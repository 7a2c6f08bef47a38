"""What can be built for the end-to-end tests: modules beside this file, and what is built of them together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
OLDER = "k8s-"


class BuildError(Exception):
    """Go was there and could not build: a reason to fail."""


@dataclass(frozen=True)
class ToolModule:
    """A module beside this file whose tools are built.

    Attributes:
        module: its directory.
        requires: the module that it builds tools of.
        binaries: what comes of it.
        output: the name of its one binary; empty where Go is to name each after its package.
        ldflags: what the linker writes into the binaries, by the module's version.
        data: directories of the module that are needed beside the binaries.
    """

    module: str
    requires: str
    binaries: tuple[str, ...]
    output: str = ""
    ldflags: Callable[[str], str] = lambda _version: "-s -w"
    data: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version that the module's ``go.mod`` requires."""
        return _required(HERE / self.module / "go.mod", self.requires)

    def sources(self) -> Iterator[bytes]:
        """All that decides what is built: flags, and the files of the module and of those it takes from beside it."""
        yield self.ldflags(self.version).encode()
        module = HERE / self.module
        beside = re.findall(r"=> (\.\.?/\S+)", (module / "go.mod").read_text())
        for directory in (module, *((module / path).resolve() for path in beside)):
            for file in sorted(directory.rglob("[!.]*")):
                if file.is_file():
                    content = file.read_bytes()
                    yield f"{directory.name}/{file.relative_to(directory)} {len(content)}\n".encode() + content


@dataclass(frozen=True)
class Bundle:
    """What is built together, into one directory of the cache.

    Attributes:
        name: of the directory that holds a directory for each version.
        title: for people.
        takes: how long, for people.
        assets: what makes a directory in KUBEBUILDER_ASSETS do instead; empty: nothing does.
    """

    name: str
    title: str
    takes: str
    parts: tuple[ToolModule, ...]
    assets: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The versions of all parts."""
        first, *others = self.parts
        return "-".join([first.version, *(f"{part.module}{part.version}" for part in others)])

    @property
    def directory(self) -> str:
        """What its build is called in the cache; a build of other sources is called otherwise."""
        digest = hashlib.sha256(b"\n".join(chunk for part in self.parts for chunk in part.sources()))
        return f"{self.version}-{digest.hexdigest()[:12]}"


def _kubernetes_ldflags(version: str) -> str:
    """Stamps the version: without it the server says v0.0.0, and clients treat it as too old for everything."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in stamps.items())])


def _plugins_ldflags(_version: str) -> str:
    """Stamps the version of Kubernetes: with that of the plugins the scheduler ends at its start."""
    built = "replace k8s.io/kubernetes => k8s.io/kubernetes"
    return _kubernetes_ldflags(_required(HERE / PLUGINS / "go.mod", built))


def _helm_ldflags(version: str) -> str:
    """Stamps the version, and that of Kubernetes for which charts are rendered without a cluster; else it is 1.20."""
    minor = _required(HERE / "helm" / "go.mod", "k8s.io/client-go").split(".")[1]
    package = "helm.sh/helm/v3"
    stamps = {
        f"{package}/internal/version.version": version,
        f"{package}/pkg/chartutil.k8sVersionMajor": "1",
        f"{package}/pkg/chartutil.k8sVersionMinor": minor,
        f"{package}/pkg/lint/rules.k8sVersionMajor": "1",
        f"{package}/pkg/lint/rules.k8sVersionMinor": minor,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])


def _kyverno_ldflags(version: str) -> str:
    """Stamps the version, which it writes into its log."""
    return f"-s -w -X github.com/kyverno/kyverno/pkg/version.BuildVersion={version}"


ETCD = ToolModule("etcd", "go.etcd.io/etcd/server/v3", ("etcd",), output="etcd")


def _control_plane(module: str, assets: tuple[str, ...] = ()) -> Bundle:
    kubernetes = ToolModule(module, "k8s.io/kubernetes", KUBERNETES, ldflags=_kubernetes_ldflags)
    return Bundle("controlplane", "Kubernetes control plane", "about four minutes", (kubernetes, ETCD), assets)


# setup-envtest's directories hold these (and kubectl), never a scheduler or a controller manager.
CONTROL_PLANE = _control_plane("k8s", assets=("kube-apiserver", "etcd"))
DESCHEDULER = Bundle(
    "descheduler",
    "descheduler",
    "about two minutes",
    (ToolModule("descheduler", "sigs.k8s.io/descheduler", ("descheduler",), output="descheduler"),),
)
HELM = Bundle(
    "helm", "Helm", "about two minutes", (ToolModule("helm", "helm.sh/helm/v3", ("helm",), "helm", _helm_ldflags),)
)
KREW = Bundle(
    "krew", "krew", "half a minute", (ToolModule("krew", "sigs.k8s.io/krew", ("krew", "validate-krew-manifest")),)
)
PLUGINS = "scheduler-plugins"
SCHEDULER_PLUGINS = Bundle(
    PLUGINS,
    f"kube-scheduler with {PLUGINS}",
    "about three minutes",
    (ToolModule(PLUGINS, f"sigs.k8s.io/{PLUGINS}", ("kube-scheduler",), "kube-scheduler", _plugins_ldflags),),
)
CERT_MANAGER_TOOLS = ("cert-manager-controller", "cert-manager-cainjector")
CERT_MANAGER = Bundle(
    "cert-manager",
    "cert-manager",
    "about three minutes",
    (ToolModule("cert-manager", "github.com/cert-manager/cert-manager", CERT_MANAGER_TOOLS, data=("deploy/crds",)),),
)
METRICS_SERVER = Bundle(
    "metrics-server",
    "metrics-server",
    "about two minutes",
    (ToolModule("metrics-server", "sigs.k8s.io/metrics-server", ("metrics-server",), "metrics-server"),),
)
CEL_COST = Bundle(
    "cel-cost",
    "the API server's evaluation of admission policies",
    "half a minute",
    (ToolModule("cel-cost", "k8s.io/apiserver", ("cel-cost",), "cel-cost"),),
)
KYVERNO = Bundle(
    "kyverno",
    "Kyverno",
    "about eight minutes",
    (
        ToolModule(
            "kyverno", "github.com/kyverno/kyverno", ("kyverno",), "kyverno", _kyverno_ldflags, data=("config/crds",)
        ),
    ),
)
OLM = Bundle(
    "olm",
    "the checks of a bundle for the Operator Lifecycle Manager",
    "two minutes",
    (ToolModule("olm", "github.com/operator-framework/api", ("olm-bundle",), "olm-bundle"),),
)
NODE = Bundle(
    "node",
    "Kubernetes node",
    "about two minutes",
    (ToolModule("node", "k8s.io/kubernetes", ("kubelet", "kube-proxy"), ldflags=_kubernetes_ldflags),),
)
# An option each, of the same name.
ALONE = (DESCHEDULER, SCHEDULER_PLUGINS, HELM, KREW, NODE, CERT_MANAGER, METRICS_SERVER, CEL_COST, OLM, KYVERNO)
KUBEVIRT_BINARIES = ("virt-api", "virt-controller", "virt-operator-objects")

KUBEVIRT_NODE_BINARIES = (
    *("virt-operator", "virt-api", "virt-controller", "virt-exportproxy", "synchronization-controller"),
    *("virt-chroot", "virt-launcher-monitor", "virt-probe", "virt-freezer", "virt-tail"),
    "kubevirt-manifests",
)


def _kubevirt(module: str) -> Bundle:
    part = ToolModule(module, "kubevirt.io/kubevirt", KUBEVIRT_BINARIES)
    return Bundle("kubevirt", "KubeVirt control plane", "about three minutes", (part,))


KUBEVIRT = _kubevirt("kubevirt")


def kubevirt_releases() -> dict[str, Bundle]:
    """The releases of KubeVirt that can be built, such as 1.8.4, the newest first."""
    bundles = [KUBEVIRT, *(_kubevirt(module.parent.name) for module in sorted(HERE.glob("kubevirt-*/go.mod")))]
    return {bundle.parts[0].version.removeprefix("v"): bundle for bundle in bundles}


def kubevirt_ldflags(version: str) -> str:
    """Stamps the version: virt-operator and virt-handler write theirs into the cluster."""
    return f"-s -w -X kubevirt.io/client-go/version.gitVersion={version}"


# What runs guests, and what installs it; virt-launcher takes a C compiler (hack/guests).
GUESTS = Bundle(
    "guests",
    "KubeVirt with its nodes",
    "about eight minutes",
    (ToolModule("guests", "kubevirt.io/kubevirt", KUBEVIRT_NODE_BINARIES, ldflags=kubevirt_ldflags),),
)


def older_versions() -> list[str]:
    """The minor versions of Kubernetes, besides the default one, whose control planes can be built."""
    return sorted(module.parent.name.removeprefix(OLDER) for module in HERE.glob(f"{OLDER}*/go.mod"))


def older_control_plane(minor: str) -> Bundle:
    """The control plane of a minor version that ``older_versions`` lists, such as 1.34."""
    return _control_plane(f"{OLDER}{minor}")


def _required(go_mod: Path, module: str) -> str:
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{go_mod}: no version of {module} is required there; run 'go get {module}@VERSION' beside it")
    return found[1]
