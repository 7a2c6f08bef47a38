"""Documents of manifests: the objects in them, their lines, and paths in words."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from webhook.errors import InputError, InputErrors
from webhook.k8s.documents import Document, format_path, objects_in
from webhook.k8s.yaml_documents import parse_documents, read_documents


def one(text: str) -> Document:
    (document,) = parse_documents(text, "f.yaml")
    return document


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((["spec", "volumes", 0, "name"], "spec.volumes[0].name"), ([0, "a"], "[0].a"), ([], "")),
        (["metadata", "labels", "kubernetes.io/os"], 'metadata.labels["kubernetes.io/os"]'),
    ],
)
def test_paths_in_words(path: list[str | int], text: str) -> None:
    assert format_path(path) == text


def test_a_line_takes_no_more_memory_in_a_longer_list() -> None:
    def peak(number: int) -> int:
        document = one("items:\n" + "- a\n" * number)
        tracemalloc.start()
        try:
            assert document.line_of(["items", number - 1]) == number + 1
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(4000) <= peak(400) + 100


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
        assert (found[2].line_of(["x"]), {item.file for item in found}) == (8, {"f.yaml"})

    def test_items_of_typed_lists_are_of_the_list_s_kind(self, tmp_path: Path) -> None:
        document = one(
            "apiVersion: v1\nkind: PodList\nitems:\n- metadata:\n    name: a\n- kind: Other\n  apiVersion: x/v1\n"
        )
        typed, other = objects_in(document)
        assert typed.value == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
        assert [typed.line_of(path) for path in ([], ["kind"], ["metadata"], ["metadata", "name"])] == [4, 4, 4, 5]
        assert other.value == {"kind": "Other", "apiVersion": "x/v1"}
        path = tmp_path / "a.json"
        path.write_text('{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {}}]}')
        (item,) = objects_in(next(read_documents(path)))
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
            golden_catalogue("k8s/documents.txt", mistake.what)
        with pytest.raises(InputError):
            list(objects_in(one("text")))
