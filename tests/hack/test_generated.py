"""What scripts have written into the repository is what they would write now."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import pairwise

import pytest

from hack import capabilities, dashboard, manifests
from tests.cli.runner import run
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


def test_every_value_of_the_chart_has_a_comment_of_its_own() -> None:
    lines = (manifests.ROOT / "charts" / "kubevirt-webhook" / "values.yaml").read_text().splitlines()
    values = [(before, line) for before, line in pairwise(lines) if re.match(r" *[A-Za-z]+: *\S", line)]

    assert len(values) > 25
    assert [line for before, line in values if not before.strip().startswith("# ")] == []


def test_the_picture_has_every_panel_of_the_dashboard() -> None:
    shown = unescape(dashboard.PICTURE.read_text())
    titles = [panel["title"] for panel in json.loads(dashboard.DASHBOARD.read_text())["panels"]]

    assert [title for title in titles if f">{title}<" not in shown] == []
    assert shown.count("<polyline") > 5


def test_the_page_of_capabilities_says_what_the_modules_say() -> None:
    page = capabilities.PAGE.read_text()

    assert capabilities.written(page) == page, "run python -m hack.capabilities"
    # Each is asked for in one place.
    assert {name: len(files) for name, files in capabilities.places().items()} == dict.fromkeys(CAPABILITIES, 1)
