from __future__ import annotations

from pathlib import Path

import pytest

from certs.authority import check_client_authorities
from certs.pem import CertificateError, FileWatcher, read_pem
from certs.source import self_signed
from tests.golden_files import Golden


def test_a_change_counts_once_it_has_settled(tmp_path: Path) -> None:
    crt, key = tmp_path / "crt", tmp_path / "key"
    crt.write_text("1")
    key.write_text("1")
    followed = FileWatcher(crt, key)
    assert [followed.has_changed() for _ in range(2)] == [False, False]
    crt.write_text("2")
    assert not followed.has_changed(), "the key may come a moment later"
    key.write_text("2")
    assert [followed.has_changed() for _ in range(3)] == [False, True, False]
    followed.retry()
    assert [followed.has_changed() for _ in range(2)] == [True, False]


def test_mounted_secrets_change_by_a_link(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "crt").write_text(version)
    data = tmp_path / "..data"
    data.symlink_to("1")
    (tmp_path / "crt").symlink_to("..data/crt")
    followed = FileWatcher(tmp_path / "crt")
    new = tmp_path / "..new"
    new.symlink_to("2")
    new.replace(data)
    assert [followed.has_changed() for _ in range(3)] == [False, True, False]


def test_files_that_go_and_come_back(tmp_path: Path) -> None:
    crt = tmp_path / "crt"
    crt.write_text("1")
    followed = FileWatcher(crt)
    crt.unlink()
    assert not followed.has_changed()
    crt.write_text("1")
    assert [followed.has_changed() for _ in range(2)] == [False, False]
    crt.unlink()
    assert [followed.has_changed() for _ in range(2)] == [False, True]


def test_authorities_of_clients(tmp_path: Path, golden: Golden) -> None:
    check_client_authorities(tmp_path / "ca", self_signed(["localhost"]).certificate)
    with pytest.raises(CertificateError) as refused:
        check_client_authorities(tmp_path / "empty", b"nothing")
    golden(str(refused.value))
    with pytest.raises(CertificateError) as refused:
        read_pem(tmp_path / "none")
    golden(str(refused.value))
