"""The reference pages are what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from hack import reference
from hack.reference import commands, labels, metrics
from webhook import names

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_describe_the_code() -> None:
    assert reference.outdated() == [], "write them again: python -m hack.reference"
    links = set(re.findall(r"\]\(#([^)]+)\)", commands.page()))
    assert links
    assert links <= {title.replace(" ", "-") for title in re.findall(r"^## (.+)$", commands.page(), re.MULTILINE)}


def test_every_metric_is_there() -> None:
    sources = "\n".join(file.read_text() for file in (ROOT / "webhook").rglob("*.py"))
    named = set(re.findall(r'"(kubevirt_webhook_[a-z_]+)"', sources))
    listed = set(re.findall(r"^\| `(kubevirt_webhook_[a-z_]+)` \|", metrics.page(), re.MULTILINE))

    assert {name.removesuffix("_total") for name in named} == {name.removesuffix("_total") for name in listed}
    # The handwritten list, with the values of labels, has the same.
    monitoring = (ROOT / "docs" / "monitoring.md").read_text()
    assert {name for name in listed if f"`{name}`" not in monitoring} == set()


# Formats, groups and places that begin as labels do.
NOT_KEYS = {"admission", "runbooks", "v1"}
KEY = r"(?:\{(?:names\.)?DOMAIN\}|kubevirt-webhook\.github\.io)(?:/|~1)([a-z][a-z0-9-]*[a-z0-9])(?![\w/-])"


def test_every_label_and_annotation_is_there() -> None:
    sources = [*(ROOT / "webhook").rglob("*.py"), *(ROOT / "manifests").rglob("*.yaml")]
    named = set(re.findall(KEY, "\n".join(file.read_text() for file in sources)))
    listed = {key.name for key in (*labels.LABELS, *labels.PARAMETERS, *labels.RECORDS)}

    assert {value for value in vars(names).values() if str(value).startswith(f"{names.DOMAIN}/")} <= listed
    assert named - NOT_KEYS <= {name.removeprefix(f"{names.DOMAIN}/") for name in listed}


def test_labels_and_annotations_of_namespaces_are_those_that_the_api_server_lets_in() -> None:
    policy = (ROOT / "manifests" / "base" / "validation.yaml").read_text()
    found = re.findall(r"\[('[a-z-]+'(?:,\s+'[a-z-]+')*)\]\.map\(name", policy)
    admitted = {name for each in found for name in re.findall(r"[a-z-]+", each)} | {"metrics"}
    keys = (*labels.LABELS, *labels.PARAMETERS)

    assert admitted == {key.name.rpartition("/")[2] for key in keys if key.where == "Namespace"}
