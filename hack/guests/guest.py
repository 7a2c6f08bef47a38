"""The guest: Debian's cloud kernel, and a program of a few lines that tells on the serial console what it has.

It prints a line each second, and answers each line that is written to it.
"""

from __future__ import annotations

from pathlib import Path

from hack.guests.archive import Entry, write_image, write_initramfs, write_layer

NAME = "localhost/guest:1"
KERNEL = "/boot/vmlinuz"
INITRAMFS = "/boot/initrd.img"
# No escape sequences, no colors: each line is one fact. Counted is what the guest itself did, whatever its clock says.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
cpus=$(grep -c ^processor /proc/cpuinfo)
set -- $(grep MemTotal: /proc/meminfo)
memory=$2
blocks=$(ls -d /sys/devices/system/memory/memory* 2>/dev/null | wc -l)
size=$(cat /sys/devices/system/memory/block_size_bytes 2>/dev/null)
echo "guest: booted cpus=$cpus memory_kib=$memory blocks=$blocks block_bytes=0x${size:-0} kernel=$(uname -r)"
(while read -r line; do echo "guest: heard $line"; done) </dev/console &
count=0
while :; do
    count=$((count + 1))
    set -- $(cat /proc/uptime)
    echo "guest: count=$count cpus=$(grep -c ^processor /proc/cpuinfo) uptime=$1"
    sleep 1
done
"""


def write(archive: Path, unpacked: Path, place: Path) -> None:
    """Write the image with the kernel and the initramfs.

    Args:
        archive: the image.
        unpacked: Debian's packages of the kernel and of a static busybox, unpacked.
        place: a directory for what is written on the way.

    Raises:
        FileNotFoundError: the packages hold none of them.
    """
    kernels = sorted(unpacked.glob("boot/vmlinuz-*"))
    busybox = next((path for path in (unpacked / "usr/bin/busybox", unpacked / "bin/busybox") if path.exists()), None)
    if not kernels or busybox is None:
        raise FileNotFoundError(f"no kernel or no busybox in {unpacked}")
    initramfs = place / "initrd.img"
    directories = {name: Entry(None) for name in ("bin", "dev", "proc", "sys")}
    write_initramfs(initramfs, {**directories, "bin/busybox": Entry(busybox), "init": Entry(INIT.encode())})
    files = {
        "boot": Entry(None),
        # qemu runs as another user than root.
        KERNEL: Entry(kernels[-1], mode=0o644),
        INITRAMFS: Entry(initramfs, mode=0o644),
    }
    write_image(archive, [NAME], [write_layer(place / "guest.layer", files)], {"User": "107"})
