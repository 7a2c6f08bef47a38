"""What scripts have written into the repository, the reference pages among it, is what they would write now.

In the documentation's site every page is there, and links hold as in the repository.
"""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import capabilities, dashboard, manifests, reference
from hack.reference import commands, labels, metrics
from hack.site import hooks
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


ROOT = Path(__file__).resolve().parents[2]


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once_and_every_decision_in_the_list() -> None:
    nav = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text()))["nav"]
    config: Any = type("Config", (), {"nav": nav})()
    files = [file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")]

    named = pages_of(hooks.on_config(config).nav)
    assert sorted(named) == sorted([*files, *hooks.OUTSIDE.values()]), "add the page to nav in mkdocs.yml"
    page = (ROOT / "docs" / "adr" / "README.md").read_text()
    listed = {title: f"adr/{file}" for title, file in re.findall(r"^\* \[(.+)\]\((.+)\)$", page, re.MULTILINE)}

    titles = {(ROOT / "docs" / each).read_text().split("\n", 1)[0]: each for each in hooks.decisions()}
    assert {f"# {title}": file for title, file in listed.items()} == titles


def test_links_lead_to_the_same_page_in_the_site() -> None:
    rest = "[c](https://kubevirt.io) [d](#e)\n```\n[f](docs/faq.md)\n```\n"
    text = f"[a](docs/faq.md#x) ![b](docs/images/decision.svg) {rest}"

    assert hooks.rewritten("README.md", text) == f"[a](faq.md#x) ![b](images/decision.svg) {rest}"
    assert hooks.rewritten("docs/faq.md", "[a](../README.md) [b](spread.md)") == "[a](index.md) [b](spread.md)"
    assert hooks.rewritten("docs/adr/0001-facts-by-replay.md", "[a](../../SECURITY.md)") == "[a](../security.md)"
    assert hooks.rewritten("README.md", "[a](docs/adr)") == "[a](adr/README.md)"
    # Files of the repository become pages that show them.
    file = "manifests/base/rbac.yaml"
    assert file in hooks.sources()
    assert hooks.rewritten("docs/faq.md", f"[a](../{file})") == f"[a](source/{file}.md)"
    assert (ROOT / file).read_text().rstrip() in hooks.shown(file)
