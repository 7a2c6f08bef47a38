"""What `make manifests` has written is what it would write now."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from hack import manifests
from tests.cli.runner import run
from webhook.install.schedulers.render import VARIANTS, Place, Variant

OTHERS = [variant for variant in VARIANTS if variant != "spread"]


@pytest.mark.parametrize("place", manifests.PLACES)
def test_the_config_maps_of_schedulers(place: Place) -> None:
    written = (manifests.SCHEDULER / place / "configuration.yaml").read_text()

    assert written == manifests.config_map(place, manifests.PLACES[place]), "run make manifests"


@pytest.mark.parametrize("variant", OTHERS)
def test_the_variants_of_schedulers(variant: Variant) -> None:
    written = (manifests.SCHEDULER / "variants" / variant / "kustomization.yaml").read_text()

    assert written == manifests.component(variant), "run make manifests"


def test_the_digest_of_the_configuration() -> None:
    written = (manifests.SCHEDULER / "second" / "deployment.yaml").read_text()

    assert written == manifests.with_digest(written), "run make manifests"
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
