from __future__ import annotations

import json
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from hack.guests.archive import CAP_NET_BIND_SERVICE, CAPABILITY, Entry, write_image, write_layer
from hack.guests.parts import LABELLED, UNLESS_EMULATED, labeller
from hack.node.packages import PreparationError


def test_an_image_names_its_layers_by_what_is_in_them(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"runs")
    entries = {
        "tmp": Entry(None, mode=0o1777),
        "/usr/bin/program": Entry(program, owner=(107, 107), capabilities=(CAP_NET_BIND_SERVICE,)),
        "etc/passwd": Entry(b"root", mode=0o644),
    }
    layer = write_layer(tmp_path / "layer.tar", entries)
    write_image(tmp_path / "image.tar", ["localhost/a:1", "localhost/b:1"], [layer], {"User": "107"})

    with tarfile.open(layer) as tar:
        found, tmp = tar.getmember("usr/bin/program"), tar.getmember("tmp")
    assert (found.mode, found.uid, found.gid) == (0o755, 107, 107)
    # <linux/capability.h>: revision 2 with the effective bit; permitted: bit 10.
    assert found.pax_headers[CAPABILITY].encode() == bytes.fromhex("0100000200040000000000000000000000000000")
    assert (tmp.isdir(), tmp.mode) == (True, 0o1777)
    with tarfile.open(tmp_path / "image.tar") as tar:
        read = {one.name: file.read() for one in tar if (file := tar.extractfile(one))}
    index = json.loads(read["index.json"])["manifests"]
    assert [one["annotations"]["io.containerd.image.name"] for one in index] == ["localhost/a:1", "localhost/b:1"]
    manifest = json.loads(read[f"blobs/{index[0]['digest'].replace(':', '/')}"])
    config = json.loads(read[f"blobs/{manifest['config']['digest'].replace(':', '/')}"])
    digest = f"sha256:{sha256(layer.read_bytes()).hexdigest()}"
    assert [one["digest"] for one in manifest["layers"]] == config["rootfs"]["diff_ids"] == [digest]
    assert read[f"blobs/{digest.replace(':', '/')}"] == layer.read_bytes()
    assert config["config"] == {"User": "107"}


def test_the_labeller_looks_at_emulation_where_the_processor_runs_no_guests(tmp_path: Path) -> None:
    script = tmp_path / "node-labeller.sh"
    script.write_text(f"HYPERVISOR_DEVICE=kvm\n{LABELLED}echo $HYPERVISOR_DEV_PATH\n")
    changed = labeller(script).decode()
    found = {}
    for flags in ("fpu svm", "fpu vmx sse", "fpu svm_lock"):
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
        here = changed.replace("/proc/cpuinfo", str(tmp_path / "cpuinfo"))
        found[flags] = subprocess.run(["bash", "-ec", here], capture_output=True, text=True, check=True).stdout.strip()

    assert UNLESS_EMULATED in changed
    assert found == {"fpu svm": "/dev/kvm", "fpu vmx sse": "/dev/kvm", "fpu svm_lock": "/dev/none"}


def test_another_labeller_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "node-labeller.sh"
    script.write_text("echo kvm\n")
    with pytest.raises(PreparationError, match=r"node-labeller\.sh of KubeVirt has changed"):
        labeller(script)
