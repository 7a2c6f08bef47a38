"""Files that are read within bounds, and those that change while they are in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from certs import files
from certs.files import FileError, Followed
from tests.k8s.client.odd_files import ODD_FILES


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert files.read(tmp_path / "a", 100) == b"x" * 100
    with pytest.raises(files.LargeFileError):
        files.read(tmp_path / "a", 99)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [*ODD_FILES, Path.mkdir, lambda path: path.symlink_to(path), lambda _: None])
def test_what_is_no_file_of_a_bounded_size_is_said_in_one_sentence(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "odd"
    make(path)
    with pytest.raises(FileError) as caught:
        files.read(path, 100)
    assert str(caught.value).startswith(f"{path} ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_is_no_name_of_a_file_is_said_in_ascii(name: str) -> None:
    with pytest.raises(FileError) as caught:
        files.read(name, 99)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two files that belong together."""
    for name in ("crt", "key"):
        (tmp_path / name).write_text("1")
    return tmp_path / "crt", tmp_path / "key"


def looks(followed: Followed, count: int) -> list[tuple[bytes, ...] | str | None]:
    """What so many looks return, or that they say why there is nothing."""
    found: list[tuple[bytes, ...] | str | None] = []
    for _ in range(count):
        try:
            found.append(followed.look())
        except FileError as error:
            found.append(error.what)
    return found


def test_a_change_counts_once_it_has_settled(pair: tuple[Path, Path]) -> None:
    followed = Followed(*pair, most=9)
    assert followed.read() == (b"1", b"1")
    assert looks(followed, 3) == [None] * 3
    pair[0].write_text("2")
    assert looks(followed, 1) == [None], "the key may come a moment later"
    pair[1].write_text("2")
    assert looks(followed, 4) == [None, (b"2", b"2"), None, None]


def test_a_change_that_is_taken_back_before_it_settles_is_none(pair: tuple[Path, Path]) -> None:
    followed = Followed(*pair, most=9)
    followed.read()
    pair[0].write_text("2")
    assert looks(followed, 1) == [None]
    pair[0].write_text("1")
    assert looks(followed, 3) == [None] * 3


def test_a_copy_that_grows_is_read_when_it_is_whole(pair: tuple[Path, Path]) -> None:
    followed = Followed(pair[0], most=9)
    followed.read()
    for content in ("", "2", "22", "222"):
        pair[0].write_text(content)
        assert looks(followed, 1) == [None]
    assert looks(followed, 1) == [(b"222",)]


def test_credentials_count_at_once(pair: tuple[Path, Path]) -> None:
    followed = Followed(*pair, most=9, looks=1)
    assert looks(followed, 2) == [(b"1", b"1"), None]
    pair[1].write_text("2")
    assert looks(followed, 2) == [(b"1", b"2"), None]


def test_what_was_read_on_purpose_is_no_change(pair: tuple[Path, Path]) -> None:
    followed = Followed(*pair, most=9)
    followed.read()
    pair[0].write_text("2")
    assert followed.read() == (b"2", b"1")
    assert looks(followed, 3) == [None] * 3
    pair[0].write_text("1")
    assert looks(followed, 2) == [None, (b"1", b"1")]


@pytest.mark.parametrize("name", ["crt", "key"])
def test_files_of_a_mounted_secret_are_of_one_version(tmp_path: Path, name: str) -> None:
    """Also where the links are swapped between the readings of two files."""
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        for each in ("crt", "key"):
            (tmp_path / version / each).write_text(version)
    (tmp_path / "..data").symlink_to("1")
    for each in ("crt", "key"):
        (tmp_path / each).symlink_to(f"..data/{each}")
    followed = Followed(tmp_path / "crt", tmp_path / "key", most=9)
    followed.read()

    def swap() -> None:
        (tmp_path / "..new").symlink_to("2")
        (tmp_path / "..new").replace(tmp_path / "..data")

    with pytest.MonkeyPatch.context() as patch:
        read = files.read

        def read_and_swap(path: Path, most: int) -> bytes:
            content = read(path, most)
            if path.name == name:
                swap()
            return content

        patch.setattr(files, "read", read_and_swap)
        assert looks(followed, 1) == [None]
    assert looks(followed, 3) == ([None, (b"2", b"2"), None])


def test_that_files_stay_away_is_said_once_and_that_they_are_back(pair: tuple[Path, Path]) -> None:
    followed = Followed(*pair, most=9)
    followed.read()
    pair[0].unlink()
    assert looks(followed, 1) == [None], "its links may be swapped"
    pair[0].write_text("1")
    assert looks(followed, 2) == [None] * 2
    pair[0].unlink()
    assert looks(followed, 3) == [None, "cannot be read: No such file or directory", None]
    pair[0].write_text("0123456789")
    assert looks(followed, 3) == [None, "is larger than 0 MiB", None]
    pair[0].write_text("1")
    assert looks(followed, 3) == [None, (b"1", b"1"), None]


def test_a_start_without_files_is_said_and_they_count_when_they_come(pair: tuple[Path, Path]) -> None:
    pair[1].unlink()
    followed = Followed(*pair, most=9)
    with pytest.raises(FileError):
        followed.read()
    assert looks(followed, 2) == [None] * 2
    pair[1].write_text("1")
    assert looks(followed, 2) == [None, (b"1", b"1")]
