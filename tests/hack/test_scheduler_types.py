"""The Go types of kube-scheduler's configuration that the package holds."""

from __future__ import annotations

import json

from hack import scheduler_types
from hack.controlplane.bundles import CONTROL_PLANE, SCHEDULER_PLUGINS, kubevirt_releases
from hack.kubevirt_types import types_of
from webhook.install.schedulers.go_types import FILE
from webhook.kubevirt.releases.capabilities import parse_version


def test_types_are_of_the_versions_that_the_tests_run() -> None:
    held = json.loads(FILE.read_text())["versions"]
    assert held == {
        part.requires: part.version for each in (CONTROL_PLANE, SCHEDULER_PLUGINS) for part in each.parts[:1]
    }
    for version, bundle in kubevirt_releases().items():
        parsed = parse_version(version)
        assert parsed
        assert types_of(parsed).version == bundle.parts[0].version, (
            f"run python -m hack.kubevirt_types --release {parsed.major}.{parsed.minor}"
        )


def test_of_types_that_both_have_those_of_kubernetes_count() -> None:
    kubernetes, plugins = (
        {"kinds": {"A": f"{where}.A", kind: f"{where}.{kind}"}, "structs": {"A": [where]}}
        for where, kind in (("kubernetes", "B"), ("plugins", "C"))
    )
    written = json.loads(scheduler_types.written(kubernetes, plugins, {"v": "1"}))
    assert written == {
        "versions": {"v": "1"},
        "kinds": {"A": "kubernetes.A", "B": "kubernetes.B", "C": "plugins.C"},
        "structs": {"A": ["kubernetes"]},
    }
