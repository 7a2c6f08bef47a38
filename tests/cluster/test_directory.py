"""Errors in the files of a cluster are reported, and all other files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.cluster.files_case import made, rejection
from tests.golden_files import Golden
from webhook.cluster import directory, files
from webhook.cluster.directory import KINDS
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError, InputErrors


class TestDirectoryMistakes:
    def test_no_directory_no_files_and_no_objects(self, tmp_path: Path, golden: Golden) -> None:
        golden("\n".join(rejection(tmp_path / "none")))
        golden("\n".join(rejection(tmp_path)))
        (tmp_path / "a.yaml").write_text("# nothing\n---\nkind: List\n")
        golden("\n".join(rejection(tmp_path)))

    def test_a_directory_that_can_t_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def walk(root: Path, onerror: Any) -> Any:
            onerror(PermissionError(13, "Permission denied", f"{root}/locked"))
            return []

        monkeypatch.setattr("os.walk", walk)

        assert rejection(tmp_path) == ["locked: cannot be read: Permission denied"]

    def test_all_are_told_at_once(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.yaml").write_text(
            """\
kind: Node
---
apiVersion: v1
---
apiVersion: v1
kind: Nod
metadata: {name: a}
---
apiVersion: apps/v1
kind: Pod
metadata: {name: a}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
---
apiVersion: v1
kind: Node
metadata:
  name: a
  namespace: b
---
apiVersion: v1
kind: Node
metadata:
  generateName: a-
---
apiVersion: v1
kind: Node
---
apiVersion: kubevirt.io/v2
kind: KubeVirt
metadata: {name: a, namespace: b}
---
apiVersion: pool.kubevirt.io/latest
kind: VirtualMachinePool
metadata: {name: a, namespace: b}
---
apiVersion: v1
kind: List
items:
- 1
- {apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: yesterday}}
"""
        )
        (tmp_path / "b.yaml").write_text("a: [")
        (tmp_path / "c.yaml").write_text("a: {b: 1, b: 2}\n---\napiVersion: v1\nkind: WebApplication\n")

        golden("\n".join(rejection(tmp_path)))

    def test_the_same_object_twice(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")
        (tmp_path / "b.yaml").write_text(
            "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: b}\n- metadata: {name: a}\n---\n"
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a, namespace: 'n'}\n---\n"
            "apiVersion: kubevirt.io/v1alpha3\nkind: VirtualMachine\nmetadata: {name: a, namespace: 'n'}\n"
        )
        golden("\n".join(rejection(tmp_path)))

    @pytest.mark.parametrize(
        ("parts", "where"),
        [
            ({"metadata": {"labels": {"a": "x", "b/c": True}}}, 'metadata.labels["b/c"]'),
            ({"metadata": {"annotations": {"a": 1}}}, "metadata.annotations.a"),
            ({"metadata": {"annotations": {"a": None}}}, "metadata.annotations.a"),
            ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
            ({"metadata": {"ownerReferences": [{}, {"uid": 1.5}]}}, "metadata.ownerReferences[1].uid"),
            ({"metadata": {"ownerReferences": [{"controller": "true"}]}}, "metadata.ownerReferences[0].controller"),
            ({"spec": {"schedulerName": {"a": 1}}}, "spec.schedulerName"),
            ({"spec": []}, "spec"),
            ({"status": {"conditions": "x"}}, "status.conditions"),
        ],
    )
    def test_wrong_types_are_told_with_their_path(
        self, tmp_path: Path, parts: dict[str, Any], where: str, golden: Golden
    ) -> None:
        (tmp_path / "a.yaml").write_text(json.dumps(made("v1", "Pod", "p", "ns", **parts), indent=1))
        (line,) = rejection(tmp_path)
        place, _, what = line.partition(": ")
        assert what.startswith(f"{where} ")
        golden(what)
        assert place != "a.yaml:1"

    def test_what_msgspec_says_otherwise_is_told_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        view = msgspec.defstruct("Counted", [("metadata", Any), ("count", int)])
        kind = msgspec.structs.replace(KINDS["Node"], view=view)
        monkeypatch.setattr(directory, "KINDS", {**KINDS, "Node": kind})
        (tmp_path / "a.yaml").write_text(json.dumps(made("v1", "Node", "p")))
        golden("\n".join(rejection(tmp_path)))

    def test_endless_ones_come_to_an_end(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.yaml").write_text("---\nkind: X\n" * 1000)
        told = rejection(tmp_path)
        assert len(told) == files.MAX_MISTAKES + 1
        golden(told[-1])


LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(["v1", "Pod", "Node", "PodList", "x", ""])
KEYS = st.sampled_from(["apiVersion", "kind", "metadata", "name", "namespace", "labels", "spec", "status", "items"])


@settings(max_examples=200)
@given(st.recursive(LEAVES, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below), max_leaves=20))
def test_any_content_is_objects_or_clear_mistakes(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("files") / "a.yaml"
    path.write_text(json.dumps(value))
    try:
        found = FilesCluster.load(path, builders.settings())
    except InputErrors as refused:
        assert all(str(mistake).startswith(f"{path}:1: ") for mistake in refused.mistakes)
    except InputError as refused:
        assert refused.what == "holds no objects"
    else:
        assert found.summary()
