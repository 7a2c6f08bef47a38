from __future__ import annotations

from webhook.k8s.resources import NAMESPACES, NODES, PODS
from webhook.k8s.rights import Permission, Right, joined


def test_what_several_need_is_there_once_with_all_verbs_and_reasons() -> None:
    rights = [
        Right.on(PODS, verbs=("watch", "list"), why="waiting pods"),
        Right.on(NODES, NAMESPACES, verbs=("list",), why="places"),
        Right.on(PODS, verbs=("get", "list"), why="one pod"),
        Right.on(PODS, verbs=("list",), why="waiting pods"),
    ]
    assert joined(rights) == (
        Right.on(PODS, verbs=("get", "list", "watch"), why="waiting pods; one pod"),
        Right.on(NODES, NAMESPACES, verbs=("list",), why="places"),
    )


def test_what_is_needed_of_one_resource_of_several_adds_nothing_to_the_others() -> None:
    rights = [
        Right.on(NODES, NAMESPACES, verbs=("list",), why="places"),
        Right.on(NODES, verbs=("watch",), why="their state"),
    ]
    assert joined(rights) == (
        Right.on(NODES, verbs=("list", "watch"), why="places; their state"),
        Right.on(NAMESPACES, verbs=("list",), why="places"),
    )


def test_a_right_to_named_objects_is_one_of_its_own() -> None:
    all_of_them, one = Right.on(PODS, verbs=("list",)), Right.on(PODS, verbs=("get",), names=("a", "b"))
    assert joined([all_of_them, one]) == (all_of_them, one)
    assert one.permissions == (Permission("get", "", "pods", "a"), Permission("get", "", "pods", "b"))
    assert one.rule == {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"], "verbs": ["get"]}
