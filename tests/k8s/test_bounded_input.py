"""Inputs that are no files, that unfold, or that are too deep: one sentence, at once, whatever reads them."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runner import run
from tests.golden_files import Golden
from tests.k8s.client.odd_files import device, pipe
from webhook.errors import InputError
from webhook.k8s.bounded_input import decompress, read_file, read_limited
from webhook.k8s.client.transport import connect
from webhook.k8s.yaml_documents import read_documents
from webhook.settings_file import load

VM = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a, namespace: shop}\nspec: {template: {}}\n"


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def directory(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def every_command_refuses(path: Path) -> None:
    commands = ("review", "expand -f", "config check", "doctor --kubeconfig", "install --dry-run --settings")
    for command in (*commands, "explain migration shop/a --cluster-from"):
        result = run(*command.split(), path)
        assert result.exit_code == 2, command
        assert "Traceback" not in result.stderr


@pytest.mark.control("bombs-and-pipes-as-files")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [pipe, listening, device, directory, loop])
def test_what_is_no_regular_file_is_refused_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    make(path)
    for read in (lambda: read_file(path, 100), lambda: load(path), lambda: next(read_documents(path))):
        with pytest.raises(InputError) as refused:
            read()
        assert str(path) in str(refused.value)
    assert path not in [each.readlink() for each in Path("/proc/self/fd").iterdir() if os.path.lexists(each)]
    every_command_refuses(path)


@pytest.mark.control("bombs-and-pipes-as-files")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [pipe, listening, device])
def test_such_a_thing_among_a_directory_s_files_is_told_beside_the_others(
    make: Callable[[Path], None], tmp_path: Path, golden: Golden
) -> None:
    make(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text(VM)
    (tmp_path / "vm.yaml").write_text(VM)
    result = run("review", tmp_path / "vm.yaml", "--cluster-from", tmp_path)
    assert result.exit_code == 2
    golden(result.stderr)


def test_what_is_there_is_read(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert read_file(tmp_path / "a", 100) == b"x" * 100
    for name in ("a", "b"):
        with pytest.raises(InputError) as refused:
            read_file(tmp_path / name, 99)
        golden(refused.value.what)
    with pytest.raises(InputError, match="standard input: is larger"):
        read_limited(io.BytesIO(b"x" * 100), 99, "standard input")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_is_no_name_of_a_file_is_told(name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_file(name, 99)


@pytest.mark.control("bombs-and-pipes-as-files")
def test_a_bomb_is_put_out_before_it_has_unfolded(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    bomb = gzip.compress(b"\0" * 60_000_000)
    assert len(bomb) < 60_000
    taken = 0
    read = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal taken
        piece = read(self, size)
        taken += len(piece)
        return piece

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(InputError, match="decompresses to more than 100 times its size"):
        decompress(bomb, 1 << 30, "a.gz")
    assert taken < 8_000_000
    with pytest.raises(InputError) as refused:
        decompress(bomb, 1 << 20, "a.gz")
    golden(refused.value.what)
    assert decompress(gzip.compress(b"\0" * 1_000_000), 1 << 30, "a.gz") == b"\0" * 1_000_000, "small ones may"


@pytest.mark.control("bombs-and-pipes-as-files")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["a.yaml.gz", "a.json.gz"])
def test_a_bomb_among_the_command_s_files_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"[" * 60_000_000))
    for result in (run("review", tmp_path / name), run("review", tmp_path / name, "--cluster-from", tmp_path)):
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


@pytest.mark.control("bombs-and-pipes-as-files")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000], ids=["list", "mapping"])
def test_depth_is_one_sentence_for_every_command(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    every_command_refuses(tmp_path / name)


@pytest.mark.control("bombs-and-pipes-as-files")
async def test_a_kubeconfig_of_aliases_does_not_unfold(tmp_path: Path) -> None:
    names = "abcdefghij"
    lines = [f"{name}: &{name} [{f'*{before},' * 10}]" for before, name in itertools.pairwise(names)]
    (tmp_path / "config").write_text("\n".join([f"a: &a [{'x,' * 10}]", *lines]))
    with pytest.raises(InputError, match="no current context"):
        await connect(str(tmp_path / "config"))
