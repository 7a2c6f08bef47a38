"""What guests need, built once into the cache: KubeVirt's programs, the roots that they run in, and images of both."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hack.controlplane import build, bundles
from hack.guests import guest, roots
from hack.guests.archive import CAP_NET_BIND_SERVICE, Entry, write_image, write_layer
from hack.guests.cluster import REGISTRY
from hack.node.packages import PreparationError, run

HERE = Path(__file__).resolve().parent
# What decides what is in the images.
SOURCES = ("archive", "guest", "parts", "roots")
LAUNCHER_MODULE = bundles.HERE / "launcher"
MODULE = "kubevirt.io/kubevirt"
# KubeVirt's own images have these users, and virt-controller names them by number.
USERS = "root:x:0:0:root:/root:/bin/bash\nqemu:x:107:107:qemu:/home/qemu:/bin/bash\n"
GROUPS = "root:x:0:\nqemu:x:107:\n"
# Compiled into Debian's libvirt, which looks it up before it reads its configuration.
DEBIAN_USERS = "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin\n"
DEBIAN_GROUPS = "libvirt-qemu:x:64055:\n"
QEMU = (107, 107)
# The names of images and of what they run, and the programs.
CONTROL = {
    **{name: name for name in ("virt-operator", "virt-api", "virt-controller", "virt-exportproxy")},
    "virt-synchronization-controller": "synchronization-controller",
}
# Debian builds libvirt's drivers into one daemon. virt-launcher and virt-handler look for a process virtqemud, and
# for its socket.
LIBVIRTD = "usr/lib/kubevirt/virtqemud"
VIRTQEMUD = f"""#!/bin/sh
mkdir -p /var/run/libvirt && cd /var/run/libvirt || exit 1
rm -f libvirt-sock virtqemud-sock
(until [ -S libvirt-sock ] && ln -f libvirt-sock virtqemud-sock; do sleep 0.1; done) &
exec /{LIBVIRTD} "$@"
"""
CONTROL_USER = "1001"
# A /dev/kvm may open where the processor runs no guests. The labeller would then take the only model that KVM has there
# for the host's, and no node takes a guest of that model from another.
LABELLED = 'HYPERVISOR_DEV_PATH="/dev/${HYPERVISOR_DEVICE}"\n'
UNLESS_EMULATED = "grep -qwE 'vmx|svm' /proc/cpuinfo || HYPERVISOR_DEVICE=none\n"
NODE = ("virt-chroot", "virt-launcher-monitor", "virt-probe", "virt-freezer", "virt-tail")
# virt-handler asks KVM for what it can do, in C.
COMPILED = ("virt-handler", "virt-launcher", "libvirt-hook-client", "container-disk")
SCHEDULER = "localhost/kube-scheduler:1"


def images_in(environ: Mapping[str, str], cache: Path) -> Path:
    """Where the images of guests are once they are built from these sources.

    Args:
        environ: the environment variables.
        cache: the directory of what is kept.
    """
    binaries = [build.location(environ, bundle=bundle).name for bundle in (bundles.GUESTS, bundles.CONTROL_PLANE)]
    made_of = hashlib.sha256(" ".join(binaries).encode())
    for source in (*(HERE / f"{name}.py" for name in SOURCES), *sorted(LAUNCHER_MODULE.iterdir())):
        made_of.update(source.read_bytes())
    return cache / f"images-{made_of.hexdigest()[:12]}"


class Parts:
    """Builds them.

    Args:
        environ: the environment variables.
        cache: the directory of what is kept.
        usr: the directory with the packages of a node.
        control_plane: the directory with kube-scheduler.
    """

    def __init__(self, environ: Mapping[str, str], cache: Path, usr: Path, control_plane: Path) -> None:
        self._environ = environ
        self._cache = cache
        self._usr = usr
        self._control_plane = control_plane
        self._binaries = build.ensure(environ, bundle=bundles.GUESTS)
        self._version = build.version_of(self._binaries)
        self._go = shutil.which("go", path=environ.get("PATH")) or "go"

    @property
    def binaries(self) -> Path:
        """The directory of KubeVirt's programs that are built without a C compiler."""
        return self._binaries

    def images(self) -> Path:
        """A directory with the images as archives; built where one is missing.

        Raises:
            PreparationError: a package, a module or a compiler is not to be had.
        """
        place = images_in(self._environ, self._cache)
        if place.is_dir():
            return place
        for older in self._cache.glob("images-*"):
            shutil.rmtree(older)
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="partial-") as name:
            work = Path(name)
            made = work / "images"
            made.mkdir()
            self._write_node_image(made / "kubevirt-node.tar", work)
            self._write_control_image(made / "kubevirt.tar", work)
            self._write_scheduler_image(made / "kube-scheduler.tar", work)
            unpacked = roots.ensure(self._cache, self._usr, roots.GUEST)
            guest.write(made / "guest.tar", unpacked, work)
            made.rename(place)
        return place

    def _write_node_image(self, archive: Path, work: Path) -> None:
        """virt-handler and virt-launcher in one image: both need nearly the same of Debian."""
        compiled = self._compiled()
        commands = self._module() / "cmd" / "virt-launcher"
        files = {
            "etc/passwd": Entry(f"{USERS}{DEBIAN_USERS}".encode(), mode=0o644),
            "etc/group": Entry(f"{GROUPS}{DEBIAN_GROUPS}".encode(), mode=0o644),
            "etc/nsswitch.conf": Entry(commands / "nsswitch.conf", mode=0o644),
            "etc/libvirt": Entry(None),
            "etc/libvirt/qemu.conf": Entry(commands / "qemu.conf", mode=0o644),
            "etc/libvirt/virtqemud.conf": Entry(commands / "virtqemud.conf", mode=0o644),
            "usr/bin/node-labeller.sh": Entry(labeller(commands / "node-labeller" / "node-labeller.sh")),
            "etc/libvirt/hooks": Entry(None, owner=QEMU),
            "etc/libvirt/hooks/qemu": Entry(commands / "qemu", owner=QEMU),
            "usr/lib/kubevirt": Entry(None),
            LIBVIRTD: Entry("/usr/sbin/libvirtd"),
            "usr/sbin/virtqemud": Entry(VIRTQEMUD.encode()),
            # virt-handler follows it through /proc, where an absolute link leads into its own root.
            "var/run": Entry("../run"),
            **{f"usr/bin/{name}": Entry(compiled / name) for name in COMPILED},
            **{f"usr/bin/{name}": Entry(self._binaries / name) for name in NODE},
        }
        monitor = "usr/bin/virt-launcher-monitor"
        files[monitor] = Entry(self._binaries / "virt-launcher-monitor", capabilities=(CAP_NET_BIND_SERVICE,))
        base = roots.ensure(self._cache, self._usr, roots.LAUNCHER)
        names = [f"{REGISTRY}/{name}:{self._version}" for name in ("virt-handler", "virt-launcher")]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        write_image(archive, names, [base, write_layer(work / "node.layer", files)], {"Env": [path]})

    def _write_control_image(self, archive: Path, work: Path) -> None:
        files = {
            "tmp": Entry(None, mode=0o1777),
            "etc/passwd": Entry(f"{USERS}kubevirt:x:{CONTROL_USER}:0::/:/sbin/nologin\n".encode(), mode=0o644),
            **{f"usr/bin/{name}": Entry(self._binaries / program) for name, program in CONTROL.items()},
        }
        names = [f"{REGISTRY}/{name}:{self._version}" for name in CONTROL]
        layer = write_layer(work / "control.layer", files)
        write_image(archive, names, [layer], {"User": CONTROL_USER, "Env": ["PATH=/usr/bin"]})

    def _write_scheduler_image(self, archive: Path, work: Path) -> None:
        """The second scheduler's: the program of the cluster's own."""
        files = {"usr/local/bin/kube-scheduler": Entry(self._control_plane / "kube-scheduler")}
        layer = write_layer(work / "scheduler.layer", files)
        write_image(archive, [SCHEDULER], [layer], {"Env": ["PATH=/usr/local/bin"]})

    def _compiled(self) -> Path:
        """The directory of what takes a C compiler, and the libraries of the root that it will run in."""
        builder = roots.ensure(self._cache, self._usr, roots.BUILDER)
        modules = b"".join((LAUNCHER_MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
        place = self._cache / f"compiled-{hashlib.sha256(modules).hexdigest()[:12]}-{builder.name}"
        if place.is_dir():
            return place
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="partial-") as name:
            work = Path(name)
            self._fetch_modules(builder, work)
            out = work / "out"
            out.mkdir()
            self._compile(builder, out)
            out.rename(place)
        return place

    def _fetch_modules(self, builder: Path, work: Path) -> None:
        """Fetch what virt-launcher imports, since the root has no certificates; there libnbd has another path."""
        for name in ("go.mod", "go.sum"):
            text = (LAUNCHER_MODULE / name).read_text()
            (work / name).write_text(text.replace(f"=> {roots.SOURCES}", f"=> {builder}{roots.SOURCES}"))
        listing = ["list", f"-modfile={work / 'go.mod'}", "-mod=readonly", "-deps", "tool"]
        run("env", "CGO_ENABLED=1", "GOWORK=off", self._go, *listing, cwd=LAUNCHER_MODULE)

    def _compile(self, builder: Path, out: Path) -> None:
        root, modules, cache = run(self._go, "env", "GOROOT", "GOMODCACHE", "GOCACHE").split()
        binds = {
            Path(root): "/usr/local/go",
            Path(modules): "/modules",
            Path(cache): "/cache",
            bundles.HERE: "/sources",
            out: "/out",
        }
        environ = {
            "PATH": "/usr/local/go/bin:/usr/bin:/bin",
            "HOME": "/root",
            "GOMODCACHE": "/modules",
            "GOCACHE": "/cache",
            "GOPROXY": "off",
            "GOWORK": "off",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": self._environ.get("GOFLAGS", ""),
            "CGO_ENABLED": "1",
        }
        ldflags = bundles.kubevirt_ldflags(self._version)
        options = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={ldflags}", "-o", "/out/"]
        command = ["go", "-C", f"/sources/{LAUNCHER_MODULE.name}", "build", *options, "tool"]
        roots.compile_in(builder, binds, environ, *command)
        source = Path("/modules") / self._module().relative_to(modules) / "cmd" / "container-disk-v2alpha" / "main.c"
        disk = ["gcc", "-static", "-O2", "-o", "/out/container-disk", str(source)]
        roots.compile_in(builder, binds, environ, *disk)

    def _module(self) -> Path:
        """Where Go keeps KubeVirt's module."""
        listing = ["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", MODULE]
        return Path(run(self._go, *listing, cwd=bundles.HERE / "guests").strip())


def labeller(script: Path) -> bytes:
    """KubeVirt's script that finds a node's CPU models; it looks at emulation where the processor runs no guests.

    Raises:
        PreparationError: this release has another script.
    """
    text = script.read_text()
    if text.count(LABELLED) != 1:
        raise PreparationError(f"{script.name} of KubeVirt has changed; its line {LABELLED.strip()} is missing")
    return text.replace(LABELLED, UNLESS_EMULATED + LABELLED).encode()
