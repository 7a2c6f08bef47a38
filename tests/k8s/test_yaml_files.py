"""YAML and JSON out of files, and the Kubernetes objects in them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.k8s.yaml_case import one
from webhook.errors import InputError, InputErrors
from webhook.k8s import yaml_documents
from webhook.k8s.yaml_documents import MAX_DEPTH, objects_in, read_documents

pytestmark = pytest.mark.usefixtures("both_loaders")


class TestFiles:
    @pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json", "a.yaml.gz", "a.json.gz", "a"])
    def test_are_read_by_their_names(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        data = b'{"a": [1, "x"]}'
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

        (document,) = read_documents(path)

        assert (document.value, document.file, document.line) == ({"a": [1, "x"]}, str(path), 1)
        assert document.line_of(["a", 1]) == 1

    def test_json_null_is_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("null")

        assert list(read_documents(tmp_path / "a.json")) == []

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            *((b'{"a": 1,\n"b":}', 2), (b'{"a": 1,\n', 2), (b"1 2", 1), (b"NaN", 1), (b'"\xff"', 1)),
            *((b"[" * 300 + b"]" * 300, 0), (b'{"a":' * 201 + b"1" + b"}" * 201, 0), (b"[" * 100_000, 0)),
        ],
        ids=["no value", "truncated", "two values", "NaN", "not UTF-8", "arrays", "objects", "endless"],
    )
    def test_bad_json_is_refused(self, tmp_path: Path, data: bytes, line: int, told: Callable[[str], None]) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(data)

        with pytest.raises(InputError) as refused:
            list(read_documents(path))

        assert refused.value.where == (f"{path}:{line}" if line else str(path))
        told(refused.value.what)

    def test_the_deepest_json_that_is_allowed_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH)

        assert len(list(read_documents(path))) == 1

    def test_a_missing_one_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as refused:
            list(read_documents(tmp_path / "none.yaml"))
        assert refused.value.where == str(tmp_path / "none.yaml")

    def test_a_directory_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as refused:
            list(read_documents(tmp_path))
        assert refused.value.where == str(tmp_path)

    @pytest.mark.parametrize(
        "data", [b"a: 1", gzip.compress(b"a: 1", mtime=0)[:-9], gzip.compress(b"a: 1" * 99, mtime=0)[:20]]
    )
    def test_a_broken_gzip_file_is_told(self, tmp_path: Path, data: bytes, told: Callable[[str], None]) -> None:
        path = tmp_path / "a.yaml.gz"
        path.write_bytes(data)

        with pytest.raises(InputError) as refused:
            list(read_documents(path))
        told(refused.value.what)

    @pytest.mark.parametrize("name", ["a.yaml", "a.yaml.gz"])
    def test_a_large_one_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: Callable[[str], None]
    ) -> None:
        monkeypatch.setattr(yaml_documents, "MAX_BYTES", 1 << 20)
        data = b"#" * ((1 << 20) + 1)
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

        with pytest.raises(InputError) as refused:
            list(read_documents(tmp_path / name))

        told(refused.value.what)


class TestObjects:
    @pytest.mark.parametrize(
        "text", ["kind: Pod", "kind: AccessList", "a: 1", "kind: [a]", "kind: PodLister\nitems: []"]
    )
    def test_an_object_is_itself(self, text: str) -> None:
        document = one(text)

        assert list(objects_in(document)) == [document]

    def test_lists_are_taken_apart(self) -> None:
        document = one(
            "kind: List\nitems:\n- kind: A\n- kind: List\n  items:\n  - kind: B\n  - kind: C\n    x: 1\n- kind: D\n"
        )
        found = list(objects_in(document))

        assert [(item.value["kind"], item.line) for item in found] == [("A", 3), ("B", 6), ("C", 7), ("D", 9)]
        assert found[2].line_of(["x"]) == 8
        assert {item.file for item in found} == {"f.yaml"}

    def test_items_of_typed_lists_are_of_the_list_s_kind(self) -> None:
        document = one(
            "apiVersion: v1\nkind: PodList\nitems:\n- metadata:\n    name: a\n- kind: Other\n  apiVersion: x/v1\n"
        )
        typed, other = objects_in(document)

        assert typed.value == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
        assert [typed.line_of(path) for path in ([], ["kind"], ["metadata"], ["metadata", "name"])] == [4, 4, 4, 5]
        assert other.value == {"kind": "Other", "apiVersion": "x/v1"}

    def test_items_of_typed_lists_in_json(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text('{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {}}]}')
        (document,) = read_documents(path)
        (item,) = objects_in(document)

        assert item.value == {"apiVersion": "v1", "kind": "Node", "metadata": {}}
        assert item.line_of(["metadata"]) == 1

    @pytest.mark.parametrize("text", ["kind: List", "kind: List\nitems:", "kind: PodList\nitems: []"])
    def test_lists_may_be_empty(self, text: str) -> None:
        assert list(objects_in(one(text))) == []

    def test_what_is_no_object_is_told_after_the_rest(self, golden_catalogue: Callable[[str, str], None]) -> None:
        found = objects_in(one("kind: List\nitems:\n- 1\n- kind: A\n- kind: BList\n  items: {}\n- [x]\n"))

        assert next(found).value == {"kind": "A"}
        with pytest.raises(InputErrors) as refused:
            next(found)
        assert [mistake.where for mistake in refused.value.mistakes] == ["f.yaml:3", "f.yaml:6", "f.yaml:7"]
        for mistake in refused.value.mistakes:
            golden_catalogue("k8s/yaml_documents.txt", mistake.what)

    def test_a_bare_scalar_is_no_object(self) -> None:
        with pytest.raises(InputError):
            list(objects_in(one("text")))
