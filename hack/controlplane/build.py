#!/usr/bin/env python3
"""Builds what the end-to-end tests run, once, into a cache: control planes of Kubernetes and KubeVirt.

Compiling takes minutes, so a finished build is kept and shared: by later runs, by every worktree and by parallel test
workers. Three things make that safe: the name of a build has a digest of everything here that it is made of; it
appears under that name by one rename (a directory of that name is complete, always); and a file lock lets one process
build while the others wait for it.

The versions are those in ``k8s/go.mod``, ``etcd/go.mod`` and ``kubevirt/go.mod`` beside this file, and older ones in
``k8s-1.34/go.mod``, ``kubevirt-1.8/go.mod`` and so on; their go.sum files pin every byte that is compiled, and
``-mod=readonly`` keeps the build from changing either. Standard library only: CI installs nothing before.

``--krew`` builds krew and the validator of its index, for the tests of the kubectl plugin. ``--cert-manager`` builds
cert-manager's controllers out of its library, since its own commands are in modules that no proxy has.
``--scheduler-plugins`` builds the kube-scheduler whose plugins the load-aware configurations run.
``--kubernetes 1.34`` builds the control plane of an older minor version, with the same etcd; its kube-scheduler also
runs beside the newest API server.

Exit codes: 0 built or found (the directory is the last line of output), 1 the build failed, 2 usage, 69 there is
nothing to build with: the last line on standard error is the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EX_UNAVAILABLE = 69  # sysexits.h: "a support program or file does not exist"

HERE = Path(__file__).resolve().parent
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
OLDER = "k8s-"
LOG_TAIL = 15


class UnavailableError(Exception):
    """There is neither a build, nor one of the user's own, nor Go to make one: a reason to skip, not to fail."""


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
    "krew",
    "krew",
    "half a minute",
    (ToolModule("krew", "sigs.k8s.io/krew", ("krew", "validate-krew-manifest")),),
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
NODE = Bundle(
    "node",
    "Kubernetes node",
    "about two minutes",
    (ToolModule("node", "k8s.io/kubernetes", ("kubelet", "kube-proxy"), ldflags=_kubernetes_ldflags),),
)
# An option each, of the same name.
ALONE = (DESCHEDULER, SCHEDULER_PLUGINS, HELM, KREW, NODE, CERT_MANAGER, METRICS_SERVER)
KUBEVIRT_BINARIES = ("virt-api", "virt-controller", "virt-operator-objects")


def _kubevirt(module: str) -> Bundle:
    part = ToolModule(module, "kubevirt.io/kubevirt", KUBEVIRT_BINARIES)
    return Bundle("kubevirt", "KubeVirt control plane", "about three minutes", (part,))


KUBEVIRT = _kubevirt("kubevirt")


def kubevirt_releases() -> dict[str, Bundle]:
    """The releases of KubeVirt that can be built, such as 1.8.4, the newest first."""
    bundles = [KUBEVIRT, *(_kubevirt(module.parent.name) for module in sorted(HERE.glob("kubevirt-*/go.mod")))]
    return {bundle.parts[0].version.removeprefix("v"): bundle for bundle in bundles}


def older_versions() -> list[str]:
    """The minor versions of Kubernetes, besides the newest one, whose control planes can be built."""
    return sorted(module.parent.name.removeprefix(OLDER) for module in HERE.glob(f"{OLDER}*/go.mod"))


def older_control_plane(minor: str) -> Bundle:
    """The control plane of a minor version that ``older_versions`` lists, such as 1.34."""
    return _control_plane(f"{OLDER}{minor}")


def _required(go_mod: Path, module: str) -> str:
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{go_mod}: no version of {module} is required there; run 'go get {module}@VERSION' beside it")
    return found[1]


def cache_root(environ: Mapping[str, str]) -> Path:
    """The project's cache directory, by the project's own variable, else by the XDG base directory specification."""
    if own := environ.get("KUBEVIRT_WEBHOOK_CACHE"):
        return Path(own).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kubevirt-webhook"


def _assets(environ: Mapping[str, str], bundle: Bundle) -> Path | None:
    """The binaries that the user brought along in ``KUBEBUILDER_ASSETS``, if they can run an API server."""
    directory = environ.get("KUBEBUILDER_ASSETS")
    if not bundle.assets or not directory or _missing(Path(directory), bundle.assets):
        return None
    return Path(directory).resolve()


def location(environ: Mapping[str, str], cache: Path | None = None, bundle: Bundle = CONTROL_PLANE) -> Path:
    """Where the binaries are, or will be once they are built."""
    return _assets(environ, bundle) or (cache or cache_root(environ)).resolve() / bundle.name / bundle.directory


def version_of(directory: Path) -> str:
    """The version of what was built into a directory, such as v1.9.0; of several parts those of all."""
    return directory.name.rpartition("-")[0]


def ensure(environ: Mapping[str, str], cache: Path | None = None, bundle: Bundle = CONTROL_PLANE) -> Path:
    """The directory of the binaries, built now where they are missing; raises UnavailableError or BuildError."""
    directory = location(environ, cache, bundle)
    if directory.is_dir():
        return directory
    go = shutil.which("go", path=environ.get("PATH"))
    needed = " and ".join(bundle.assets)
    if go is None:
        brought = f", or point KUBEBUILDER_ASSETS at a directory with {needed}" if needed else ""
        raise UnavailableError(f"no {bundle.title} to test with: install Go to build one{brought}")
    if needed and (incomplete := environ.get("KUBEBUILDER_ASSETS")):
        _say(f"KUBEBUILDER_ASSETS={incomplete} doesn't hold {needed}: building them instead")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_name(f"{directory.name}.lock")):
        if not directory.is_dir():  # else another process built it while this one waited
            _build(go, bundle, directory, environ)
    return directory


def _missing(directory: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not os.access(directory / name, os.X_OK)]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock on ``path``; the kernel drops it when this process dies, so a lock is never left behind."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process is building the same: waiting for {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(go: str, bundle: Bundle, directory: Path, environ: Mapping[str, str]) -> None:
    partial = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a build that was killed; the lock says it isn't running any more
    partial.mkdir()
    what = " and ".join(f"{part.requires} {part.version}" for part in bundle.parts)
    _say(f"building once: {bundle.title} ({what}), {bundle.takes} on two cores")
    for part in bundle.parts:
        # A directory with a trailing slash: Go names each command after its package.
        _go_build(go, HERE / part.module, f"{partial}/{part.output}", part.ldflags(part.version), environ)
        for each in part.data:
            source = _module_directory(go, part, environ) / each
            shutil.copytree(source, partial / source.name, copy_function=shutil.copyfile)
    if absent := _missing(partial, [binary for part in bundle.parts for binary in part.binaries]):
        raise BuildError(f"the build made no {', '.join(absent)}: is it a tool in {HERE}/*/go.mod?")
    partial.rename(directory)


def _go_build(go: str, module: Path, output: Path | str, ldflags: str, environ: Mapping[str, str]) -> None:
    """Builds the commands that ``module`` lists as tools."""
    options = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={ldflags}"]
    done = _run_go([go, "build", *options, "-o", str(output), "tool"], module, environ)
    if done.returncode:
        tail = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-LOG_TAIL:])
        raise BuildError(f"'go build' of the tools in {module / 'go.mod'} failed; its last lines:\n{tail}")


def _module_directory(go: str, part: ToolModule, environ: Mapping[str, str]) -> Path:
    """Where Go keeps the module that a part requires; the build has fetched it."""
    done = _run_go([go, "list", "-m", "-f", "{{.Dir}}", part.requires], HERE / part.module, environ)
    if done.returncode:
        raise BuildError(f"'go list -m {part.requires}' failed: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def _run_go(command: Sequence[str], module: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs Go for this machine, on one module alone, without a C compiler."""
    kept = {name: value for name, value in environ.items() if name not in {"GOOS", "GOARCH"}}
    own = {**kept, "CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        return subprocess.run(
            command, cwd=module, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BuildError(f"{command[0]} could not be started: {error.strerror}; check the Go installation") from error


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build.py",
        description="Build what the end-to-end tests run; the last line is its directory.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--kubevirt",
        nargs="?",
        metavar="RELEASE",
        const=next(iter(kubevirt_releases())),
        choices=list(kubevirt_releases()),
        help="build KubeVirt's virt-api and virt-controller, not Kubernetes; "
        f"the releases: {', '.join(kubevirt_releases())} (default: the first)",
    )
    what.add_argument(
        "--kubernetes",
        metavar="VERSION",
        choices=older_versions(),
        help=f"build the control plane of an older minor version ({', '.join(older_versions())})",
    )
    for bundle in ALONE:
        what.add_argument(f"--{bundle.name}", action="store_true", help=f"build only this: {bundle.title}")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="cache directory (default: $KUBEVIRT_WEBHOOK_CACHE, else kubevirt-webhook in the user's cache directory)",
    )
    parser.add_argument(
        "--print", action="store_true", help="build nothing, only print where the binaries are or will be"
    )
    return parser


def _bundle(options: argparse.Namespace) -> Bundle:
    for bundle in ALONE:
        if getattr(options, bundle.name.replace("-", "_")):
            return bundle
    if options.kubernetes:
        return older_control_plane(options.kubernetes)
    return kubevirt_releases()[options.kubevirt] if options.kubevirt else CONTROL_PLANE


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the directory or one sentence of what is wrong; returns the exit code."""
    options = _parser().parse_args(arguments)
    bundle = _bundle(options)
    find = location if options.print else ensure
    try:
        print(find(os.environ, options.cache, bundle))
    except UnavailableError as reason:
        _say(str(reason))
        return EX_UNAVAILABLE
    except BuildError as error:
        _say(f"error: {error}")
        return 1
    except OSError as error:
        _say(f"error: {error.filename}: {error.strerror}; choose another cache directory with --cache")
        return 1
    except KeyboardInterrupt:
        _say("error: interrupted; run it again, what was compiled is kept in Go's cache")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
