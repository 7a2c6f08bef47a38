"""Roots of a Debian release whose libvirt, libnbd and qemu KubeVirt can be built and run with, whatever this one is."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.node.packages import PreparationError, run

# The first release with libnbd 1.20, which virt-launcher is compiled with.
SUITE = "trixie"
# libnbd's binding for Go is in no Debian package, and its module is not served everywhere; its source has both.
SOURCE = "libnbd"
SOURCES = "/usr/src"
SOURCE_HOOKS = (
    """--setup-hook=sed -n 's/^deb /deb-src /p' "$1/etc/apt/sources.list" > "$1/etc/apt/sources.list.d/src.list\"""",
    f"""--customize-hook=mkdir -p "$1{SOURCES}/{SOURCE}" && cd "$1{SOURCES}" &&
    APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q source --download-only {SOURCE} &&
    tar -C {SOURCE} --strip-components=1 -xf {SOURCE}_*.orig.tar.?z""",
)
UNUSED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class Root:
    """What a root is made of.

    Attributes:
        name: its own.
        packages: what is in it besides the variant's.
        variant: of mmdebstrap; ``extract`` unpacks packages and runs nothing.
        hooks: further options of mmdebstrap.
        suffix: ``.tar`` for an archive; by default it is a directory.
    """

    name: str
    packages: tuple[str, ...]
    variant: str = "minbase"
    hooks: tuple[str, ...] = ()
    suffix: str = ""


BUILDER = Root("builder", ("gcc", "libc6-dev", "pkgconf", "libvirt-dev", "libnbd-dev"), hooks=SOURCE_HOOKS)
# What virt-handler and virt-launcher call. Firmware, since qemu looks for the ROM of each network card.
LAUNCHER = Root(
    "launcher",
    (
        *("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-log", "libvirt-clients", "libnbd0"),
        *("qemu-system-x86", "qemu-utils", "seabios", "ipxe-qemu"),
        *("nftables", "iproute2", "procps"),
    ),
    suffix=".tar",
)
GUEST = Root("guest", ("linux-image-cloud-amd64", "busybox-static"), variant="extract")


def ensure(cache: Path, usr: Path, root: Root) -> Path:
    """Where a root is, made where it is missing.

    Args:
        cache: the directory of all roots.
        usr: the directory with mmdebstrap, which lies over ``/usr`` meanwhile.
        root: what it is made of.

    Raises:
        PreparationError: the release or a package is not to be had.
    """
    made_of = (SUITE, root.variant, *root.packages, *root.hooks, *UNUSED)
    digest = hashlib.sha256(" ".join(made_of).encode()).hexdigest()[:12]
    place = cache / f"{SUITE}-{root.name}-{digest}{root.suffix}"
    if place.exists():
        return place
    partial = cache / f"partial-{place.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.unlink(missing_ok=True)
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNUSED]
    command = ["mmdebstrap", "--quiet", f"--variant={root.variant}", *options, *root.hooks]
    try:
        inside(usr, *command, f"--include={','.join(root.packages)}", SUITE, str(partial))
    except PreparationError as error:
        raise PreparationError(f"Debian {SUITE} is not to be had: {error}", error.output) from error
    partial.rename(place)
    return place


def inside(usr: Path, *command: str) -> str:
    """What a program prints that runs where the packages of a node lie over ``/usr``.

    Raises:
        PreparationError: it fails.
    """
    script = f'mount -t overlay overlay -o lowerdir={usr}:/usr /usr && exec "$@"'
    return run("unshare", "--mount", "--propagation=private", "bash", "-c", script, "--", *command)


def compile_in(root: Path, binds: dict[Path, str], environ: dict[str, str], *command: str) -> str:
    """Run a compiler in a root.

    Args:
        root: a root that is a directory.
        binds: directories of this machine, and where they are in the root.
        environ: all environment variables.
        command: the command line.

    Raises:
        PreparationError: it fails.
    """
    mounts = []
    for directory, target in {**binds, Path("/proc"): "/proc", Path("/dev"): "/dev"}.items():
        within = root / target.lstrip("/")
        within.mkdir(parents=True, exist_ok=True)
        mounts.append(f"mount --rbind {directory} {within}")
    script = f'{" && ".join(mounts)} && exec chroot {root} env -i "$@"'
    variables = [f"{name}={value}" for name, value in environ.items()]
    return run("unshare", "--mount", "--propagation=private", "bash", "-c", script, "--", *variables, *command)
