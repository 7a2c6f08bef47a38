#!/usr/bin/env python3
"""Builds what the end-to-end tests run, once, into a cache: control planes of Kubernetes and KubeVirt.

Compiling takes minutes, so a finished build is kept and shared: by later runs, by every worktree and by parallel test
workers. Three things make that safe: the name of a build has a digest of everything here that it is made of; it
appears under that name by one rename (a directory of that name is complete, always); and a file lock lets one process
build while the others wait for it.

The versions are those in ``k8s/go.mod``, ``etcd/go.mod`` and ``kubevirt/go.mod`` beside this file, and older ones in
``k8s-1.34/go.mod``, ``kubevirt-1.8/go.mod`` and so on; their go.sum files pin every byte that is compiled, and
``-mod=readonly`` keeps the build from changing either. Standard library only: CI installs nothing before.

``--krew`` builds krew and the validator of its index, for the tests of the kubectl plugin, and ``--metrics-server``
metrics-server. ``--cert-manager`` builds cert-manager's controllers out of its library, since its own commands are in
modules that no proxy has. ``--scheduler-plugins`` builds the kube-scheduler whose plugins the load-aware configurations
run. ``--cel-cost`` builds what counts the cost of admission policies as the API server does, ``--olm`` what checks a
bundle for OperatorHub, ``--kyverno`` the admission controller that benchmarks run beside this project, with its CRDs.
``--kubernetes 1.34`` builds the control plane of an older minor version, with the same etcd;
its kube-scheduler also runs beside the newest API server.

Exit codes: 0 built or found (the directory is the last line of output), 1 the build failed, 2 usage, 69 there is
nothing to build with: the last line on standard error is the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hack.controlplane.bundles import (
    ALONE,
    CONTROL_PLANE,
    HERE,
    BuildError,
    Bundle,
    ToolModule,
    kubevirt_releases,
    older_control_plane,
    older_versions,
)

EX_UNAVAILABLE = 69  # sysexits.h: "a support program or file does not exist"

LOG_TAIL = 15


class UnavailableError(Exception):
    """There is neither a build, nor one of the user's own, nor Go to make one: a reason to skip, not to fail."""


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


def _stored(environ: Mapping[str, str], bundle: Bundle) -> Path | None:
    """The newest binaries of setup-envtest's store that are of the bundle's minor version, and can run an API server.

    They hold no scheduler, so they come last: where there is no build, and no Go to make one.
    """
    data = Path(environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    minor = bundle.parts[0].version.removeprefix("v").rpartition(".")[0]
    system = platform.system().lower()
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    found = (data / "kubebuilder-envtest" / "k8s").glob(f"{minor}.*-{system}-{processor}")
    usable = [each for each in found if bundle.assets and not _missing(each, bundle.assets)]
    return max(usable, key=lambda each: int(re.findall(r"\d+", each.name)[2]), default=None)


def compiler(environ: Mapping[str, str]) -> str | None:
    """Go, if there is one."""
    return shutil.which("go", path=environ.get("PATH"))


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
    go = compiler(environ)
    needed = " and ".join(bundle.assets)
    if go is None:
        if stored := _stored(environ, bundle):
            return stored
        brought = f", or point KUBEBUILDER_ASSETS at a directory with {needed}" if needed else ""
        raise UnavailableError(f"no {bundle.title} to test with: install Go to build one{brought}")
    if needed and (incomplete := environ.get("KUBEBUILDER_ASSETS")):
        _say(f"KUBEBUILDER_ASSETS={incomplete} doesn't hold {needed}: building them instead")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.with_name(f"{directory.name}.lock")):
        if not directory.is_dir():  # else another process built it while this one waited
            _build(go, bundle, directory, environ)
    return directory


def _missing(directory: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not os.access(directory / name, os.X_OK)]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
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
    _say(f"building once: {bundle.title} ({what}), {bundle.takes} on two idle cores, longer beside other work")
    for number, part in enumerate(bundle.parts, 1):
        _say(f"building {part.requires} ({number} of {len(bundle.parts)})")
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
        prog="python -m hack.controlplane.build",
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
