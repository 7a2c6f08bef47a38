"""What scripts have written into the repository, the reference pages among it, is what they would write now."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import pairwise

import pytest

from hack import capabilities, dashboard, manifests, reference
from hack.reference import commands, labels, metrics
from tests.cli.runner import run
from webhook import names
from webhook.install.schedulers.render import VARIANTS
from webhook.kubevirt.releases.capabilities import CAPABILITIES


def test_the_manifests_of_schedulers() -> None:
    def written(*path: str) -> str:
        return manifests.SCHEDULER.joinpath(*path).read_text()

    for place, variants in manifests.PLACES.items():
        assert written(place, "configuration.yaml") == manifests.config_map(place, variants), "run make manifests"
    for variant in VARIANTS:
        if variant != "spread":
            assert written("variants", variant, "kustomization.yaml") == manifests.component(variant)
    deployment = written("second", "deployment.yaml")
    assert deployment == manifests.with_digest(deployment)
    assert manifests.digest("a") != manifests.digest("b")


@pytest.mark.parametrize("overlay", ["kubernetes", "openshift"])
def test_the_policies(overlay: str) -> None:
    settings = manifests.MANIFESTS / "overlays" / overlay / "settings.yaml"
    printed = run("manifests", "policies", "--config", settings).output
    assert (manifests.MANIFESTS / "policies" / f"{overlay}.yaml").read_text() == manifests.POLICIES + printed


def test_every_value_of_the_chart_has_a_comment_and_the_picture_every_panel_of_the_dashboard() -> None:
    lines = (manifests.ROOT / "charts" / "kubevirt-webhook" / "values.yaml").read_text().splitlines()
    values = [(before, line) for before, line in pairwise(lines) if re.match(r" *[A-Za-z]+: *\S", line)]

    assert len(values) > 25
    assert [line for before, line in values if not before.strip().startswith("# ")] == []
    shown = unescape(dashboard.PICTURE.read_text())
    titles = [panel["title"] for panel in json.loads(dashboard.DASHBOARD.read_text())["panels"]]

    assert [title for title in titles if f">{title}<" not in shown] == []
    assert shown.count("<polyline") > 5


def test_the_page_of_capabilities_says_what_the_modules_say() -> None:
    page = capabilities.PAGE.read_text()

    assert capabilities.written(page) == page, "run python -m hack.capabilities"
    # Each is asked for in one place.
    assert {name: len(files) for name, files in capabilities.places().items()} == dict.fromkeys(CAPABILITIES, 1)


def test_the_pages_describe_the_code() -> None:
    assert reference.outdated() == [], "write them again: python -m hack.reference"
    links = set(re.findall(r"\]\(#([^)]+)\)", commands.page()))
    assert links
    assert links <= {title.replace(" ", "-") for title in re.findall(r"^## (.+)$", commands.page(), re.MULTILINE)}


def test_every_metric_is_there() -> None:
    sources = "\n".join(file.read_text() for file in (manifests.ROOT / "webhook").rglob("*.py"))
    named = set(re.findall(r'"(kubevirt_webhook_[a-z_]+)"', sources))
    listed = set(re.findall(r"^\| `(kubevirt_webhook_[a-z_]+)` \|", metrics.page(), re.MULTILINE))

    assert {name.removesuffix("_total") for name in named} == {name.removesuffix("_total") for name in listed}
    # The handwritten list, with the values of labels, has the same.
    monitoring = (manifests.ROOT / "docs" / "monitoring.md").read_text()
    assert {name for name in listed if f"`{name}`" not in monitoring} == set()


# Formats, groups and places that begin as labels do.
NOT_KEYS = {"admission", "runbooks", "v1"}
KEY = r"(?:\{(?:names\.)?DOMAIN\}|kubevirt-webhook\.github\.io)(?:/|~1)([a-z][a-z0-9-]*[a-z0-9])(?![\w/-])"


def test_every_label_and_annotation_is_there() -> None:
    sources = [*(manifests.ROOT / "webhook").rglob("*.py"), *(manifests.ROOT / "manifests").rglob("*.yaml")]
    named = set(re.findall(KEY, "\n".join(file.read_text() for file in sources)))
    listed = {key.name for key in (*labels.LABELS, *labels.PARAMETERS, *labels.RECORDS)}

    assert {value for value in vars(names).values() if str(value).startswith(f"{names.DOMAIN}/")} <= listed
    assert named - NOT_KEYS <= {name.removeprefix(f"{names.DOMAIN}/") for name in listed}


def test_labels_and_annotations_of_namespaces_are_those_that_the_api_server_lets_in() -> None:
    policy = (manifests.ROOT / "manifests" / "base" / "validation.yaml").read_text()
    found = re.findall(r"\[('[a-z-]+'(?:,\s+'[a-z-]+')*)\]\.map\(name", policy)
    admitted = {name for each in found for name in re.findall(r"[a-z-]+", each)} | {"metrics"}
    keys = (*labels.LABELS, *labels.PARAMETERS)

    assert admitted == {key.name.rpartition("/")[2] for key in keys if key.where == "Namespace"}
