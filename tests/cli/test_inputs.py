from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_files import Golden
from webhook.cli import inputs
from webhook.cli.inputs import PART_BYTES, Part, batches, find, read
from webhook.errors import InputError

VM = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\n"


def found(*arguments: str | Path, stdin: bytes | None = None) -> tuple[list[Part], list[InputError]]:
    mistakes: list[InputError] = []
    return list(find([str(each) for each in arguments], stdin, mistakes)), mistakes


def files(tmp_path: Path, *names: str, text: str = VM) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)


def test_a_directory_stands_for_its_manifests(tmp_path: Path) -> None:
    files(tmp_path, "a.yaml", "b/c.yml", "b/d.json", "b/notes.txt", ".hidden/e.yaml", "b/.f.yaml")
    parts, mistakes = found(tmp_path)
    assert [Path(part.file).relative_to(tmp_path).as_posix() for part in parts] == ["a.yaml", "b/c.yml", "b/d.json"]
    assert (mistakes, any(part.named for part in parts)) == ([], False)


def test_a_pattern_that_no_shell_has_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, "apps/a.yaml", "apps/b/c.yaml", "apps/.x/d.yaml", "other.yaml")
    monkeypatch.chdir(tmp_path)

    assert [part.file for part in found("apps/**/*.yaml")[0]] == ["apps/a.yaml", "apps/b/c.yaml"]
    assert [part.file for part in found(f"{tmp_path}/*.yaml")[0]] == [str(tmp_path / "other.yaml")]
    assert [str(each.where) for each in found("none/*.yaml")[1]] == ["none/*.yaml"]
    assert len(found("a**b*.yaml")[1]) == 1
    # The name of a file may look like one.
    files(tmp_path, "a[1].yaml")
    assert [part.named for part in found("a[1].yaml")[0]] == [True]


def test_what_cannot_be_read_is_a_mistake_and_the_rest_is_read(tmp_path: Path) -> None:
    files(tmp_path, "a.yaml")
    (tmp_path / "empty").mkdir()
    parts, mistakes = found(tmp_path / "none.yaml", tmp_path / "empty", tmp_path / "a.yaml")
    assert len(parts) == 1
    assert [each.where for each in mistakes] == [str(tmp_path / "none.yaml"), str(tmp_path / "empty")]


def test_only_files_that_are_named_must_hold_objects(tmp_path: Path) -> None:
    files(tmp_path, "values.yaml", text="image: x\n---\n- 1\n")
    (named,), (other,) = found(tmp_path / "values.yaml")[0], found(tmp_path)[0]
    assert (read(other).foreign, read(other).mistakes, len(read(named).mistakes)) == (2, [], 1)


def test_the_source_of_a_chart_says_how_to_render_it(tmp_path: Path, golden: Golden) -> None:
    files(tmp_path, "vm.yaml", text="metadata:\n  name: {{ .Values.name }}\n  {{- if x }}\n")
    (part,) = found(tmp_path)[0]
    (mistake,) = read(part).mistakes
    golden(mistake.fix)


def test_groups_are_of_about_equal_size() -> None:
    parts = [Part(f"{number}.yaml", 1000, named=True) for number in range(2000)]
    groups = list(batches(parts))
    assert [part for group in groups for part in group] == parts
    assert max(len(group) for group in groups) < 300


# Lines that begin or end documents, and such that only look like it.
LINES = st.sampled_from(
    ["---", "--- ", "---x", "a: 1", "b: |", "  ---", "  text", "...", "%YAML 1.1", "kind: A", "- x", "# c", "", "a: ["]
)


@given(st.lists(LINES, max_size=30), st.integers(1, 40))
def test_pieces_of_a_file_hold_what_the_file_holds(lines: list[str], size: int) -> None:
    """With the same lines, and where the file is not valid, at least one mistake, too."""
    text = "\n".join(lines)
    before = inputs.PART_BYTES
    inputs.PART_BYTES = size  # type: ignore[misc]
    try:
        parts = list(inputs._pieces("f.yaml", text.encode(), named=True))
    finally:
        inputs.PART_BYTES = before  # type: ignore[misc]
    whole = read(Part("f.yaml", len(text), named=True, text=text.encode()))
    cut = [read(part) for part in parts]

    assert b"".join(part.text or b"" for part in parts) == text.encode()
    if not whole.mistakes:
        assert [each for one in cut for each in one.documents] == whole.documents
    assert bool(whole.mistakes) == any(one.mistakes for one in cut)


def test_a_large_stream_is_cut_and_keeps_its_lines() -> None:
    one = yaml.safe_dump({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "x" * 4000}})
    text = "---\n".join([one] * 400).encode()
    parts, _ = found("-", stdin=text)
    lines = [document.line for part in parts for document in read(part).documents]

    assert len(parts) > 2
    assert lines == [1 + number * (one.count("\n") + 1) for number in range(400)]
    assert {part.file for part in parts} == {"standard input"}


def objects_of(*objects: Any) -> inputs.GivenObjects:
    return inputs.objects(inputs.documents(["-"], "---\n".join(yaml.safe_dump(item) for item in objects).encode()))


def obj(kind: str, api: str, name: str = "a", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}}


def test_sorted_by_what_they_are(tmp_path: Path) -> None:
    found = objects_of(
        obj("VirtualMachine", "kubevirt.io/v1"),
        obj("VirtualMachineInstancetype", "instancetype.kubevirt.io/v1beta1", namespace="shop"),
        obj("VirtualMachineClusterPreference", "instancetype.kubevirt.io/v1beta1"),
        *(obj("Secret", "v1", name) for name in ("a", "b")),
        # A kind of another project with the same name.
        obj("VirtualMachine", "vmoperator.vmware.com/v1alpha1"),
        obj("VirtualMachineInstance", "kubevirt.io/v1", namespace="shop"),
    )

    assert [machine.value["kind"] for machine in found.machines] == ["VirtualMachine", "VirtualMachineInstance"]
    assert [machine.value["metadata"]["namespace"] for machine in found.machines] == ["default", "shop"]
    others = {("VirtualMachineInstancetype", "shop", "a"), ("VirtualMachineClusterPreference", "", "a")}
    assert set(found.others) == others
    assert found.skipped == ["Secret", "VirtualMachine"]
    # What was read stays as it is.
    (document,) = inputs.documents(["-"], yaml.safe_dump(obj("VirtualMachine", "kubevirt.io/v1")).encode())
    inputs.objects([document])
    assert document.value["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    ("objects", "line"),
    [
        ([{"kind": "VirtualMachine"}], 1),
        ([{"apiVersion": "kubevirt.io/v1", "kind": ["VirtualMachine"]}], 2),
        ([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}], 1),
        ([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": [1]}], 3),
        ([obj("VirtualMachine", "kubevirt.io/v1", name=1)], 4),  # type: ignore[arg-type]
        ([obj("VirtualMachine", "kubevirt.io/v1", namespace=[1])], 5),
        ([obj("VirtualMachine", "kubevirt.io/v1")] * 2, 6),
    ],
    ids=["no version", "list as kind", "no metadata", "list as metadata", "number as name", "list as place", "twice"],
)
def test_what_is_no_object(objects: list[Any], line: int, golden: Golden) -> None:
    with pytest.raises(InputError) as refused:
        objects_of(*objects)

    assert refused.value.where == f"standard input:{line}"
    golden(str(refused.value))


def test_many_files_are_work_for_many_processes(tmp_path: Path) -> None:
    texts = [f"{VM}# {number:600}\n" for number in range(3000)]
    (tmp_path / "vms").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "vms" / f"{number:06}.yaml").write_text(text)
    (tmp_path / "vms.yaml").write_text("---\n".join(texts))
    for path in (tmp_path / "vms", tmp_path / "vms.yaml"):
        groups = list(batches(find([str(path)], None, [])))

        assert len(groups) >= 4
        assert max(sum(part.size for part in group) for group in groups) < 2 * PART_BYTES
