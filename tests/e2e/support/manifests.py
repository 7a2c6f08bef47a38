"""The project's manifests, of which tests install parts: what the server may do, is said there and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from .kube import Json, Kube

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
NAME = "kubevirt-webhook"
IMAGE = f"registry.example/{NAME}:1"
COMPONENTS = sorted(file.parent.name for file in MANIFESTS.glob("components/*/rbac.yaml"))
# The components that evaluate requests, and those that can be enabled beside them.
EVALUATING = (NAME, *(f"{NAME}-{component}" for component in COMPONENTS))
CERTIFICATES = ("kubevirt-webhook-certificates",)
# Verb, group, resource, and a name where the permission is for that name only.
Right = tuple[str, str, str, str]


def parse(text: str) -> list[Json]:
    """The documents of a YAML text; libyaml takes a seventh of the time, where PyYAML was built with it."""
    return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def rendered(overlay: str) -> list[Json]:
    """What `kubectl kustomize` makes of an overlay."""
    return parse((MANIFESTS / "rendered" / f"{overlay}.yaml").read_text())


def kustomization(
    directory: Path, overlay: str, *components: str, image: str = IMAGE, settings: Json | None = None
) -> str:
    """Writes a directory with an admin's own kustomization, with an image, and settings where there are some."""
    above, (name, _, tag) = os.path.relpath(MANIFESTS, directory.resolve()), image.rpartition(":")
    content: Json = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{above}/overlays/{overlay}"],
        "components": [f"{above}/components/{component}" for component in components],
        "images": [{"name": NAME, "newName": name, "newTag": tag}],
    }
    if settings is not None:
        (directory / "settings.yaml").write_text(json.dumps(settings))
        replaced = {"name": NAME, "namespace": NAME, "behavior": "replace", "files": ["settings.yaml"]}
        content |= {"configMapGenerator": [replaced], "generatorOptions": {"disableNameSuffixHash": True}}
    (directory / "kustomization.yaml").write_text(json.dumps(content))
    return str(directory)


def rbac() -> list[Json]:
    optional = (MANIFESTS / "components" / component / "rbac.yaml" for component in COMPONENTS)
    files = (MANIFESTS / "base" / "rbac.yaml", *optional)
    documents = [document for file in files for document in parse(file.read_text())]
    return [one for one in documents if one["apiVersion"].startswith("rbac.")]


def grant(kube: Kube, names: tuple[str, ...]) -> None:
    """Grants the permissions of these components to the server's account; may run repeatedly."""
    for document in rbac():
        if document["metadata"]["name"] in names:
            kube.apply(document)


def apply(kube: Kube, *files: str) -> None:
    """Applies all that stands in files, which are named by their paths within the manifests."""
    for document in (document for file in files for document in parse((MANIFESTS / file).read_text())):
        kube.apply(document)


def granted(roles: Iterable[Json] | None = None) -> set[Right]:
    """All that roles grant; by default those of the server."""
    found = rbac() if roles is None else roles
    return {right for role in found for rule in role.get("rules", ()) for right in _of(rule)}


def uncovered(used: Iterable[Right], granted: Iterable[Right]) -> set[Right]:
    """The requests that no permission covers; a request for one name is listed for any name, too."""
    return {
        one for one in used if not any(each[:3] == one[:3] and one[3] in ("", each[3] or one[3]) for each in granted)
    }


def _of(rule: Mapping[str, Any]) -> Iterator[Right]:
    yield from product(rule["verbs"], rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""]))
