"""The benchmark of scores for layers: its images, its nodes, and what it makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.layers.cases import CASES, NEITHER
from bench.layers.catalog import FAMILIES, CatalogImage, CatalogVm, make_images, make_vms, pod
from bench.layers.cost import AttemptCost, measure_cost
from bench.layers.measure import LayersFigures, LayersSize, MeasuredNodes
from bench.layers.report import chart, markdown, write_json
from webhook.install.schedulers.lint import LintTarget, lint
from webhook.k8s.yaml_documents import Document

FIGURES = {
    case.key: LayersFigures(1024 * (9 - number), 2048, (3, 5), (10.0, 20.0)) for number, case in enumerate(CASES)
}


def test_images_of_a_family_share_layers() -> None:
    images = make_images(40)
    assert images == make_images(40)
    assert len({layer for image in images for layer in image.layers}) < sum(len(image.layers) for image in images)
    assert images[0].layers.keys() & images[FAMILIES].layers.keys()
    assert not images[0].layers.keys() & images[1].layers.keys()


def test_vms_use_some_images_more_than_others() -> None:
    vms = make_vms(300, make_images(40))
    uses = sorted([vm.image.name for vm in vms].count(name) for name in {vm.image.name for vm in vms})
    assert uses[-1] > 5 * uses[0]
    assert len({vm.name for vm in vms}) == 300


def test_a_node_pulls_what_it_lacks() -> None:
    one, two = CatalogImage("one", {"L1": 1, "L2": 2, "L3": 4}), CatalogImage("two", {"L1": 1, "L2": 2, "L4": 8})
    nodes = MeasuredNodes(["a", "b"])
    assert nodes.take("a", CatalogVm("1", one, 1, 1))
    assert nodes.take("a", CatalogVm("2", two, 1, 1))
    assert not nodes.take("a", CatalogVm("3", one, 1, 1))
    assert nodes.take("b", CatalogVm("4", one, 1, 1))
    figures = nodes.figures()
    assert (figures.pulled, figures.present) == (7 + 8 + 7, 3 + 7)
    assert figures.counts == (3, 1)
    assert figures.deviation == 1.0


def test_the_cases_differ_in_what_they_score() -> None:
    plain = NEITHER.configuration("http://x")
    assert "extenders" not in plain
    for case in CASES:
        configuration = case.configuration("http://x:1")
        assert len(configuration.get("extenders", [])) == bool(case.weight)
        found = {problem.code for problem in lint(Document(configuration, "f", 1), LintTarget())}
        assert ("image-locality-on" in found) == bool(case.image_locality)
        assert "extender-not-ignorable" not in found


def test_a_pod_has_its_disk_and_the_launcher() -> None:
    vm = make_vms(1, make_images(1))[0]
    made = json.dumps(pod(vm, "registry.example", "kubevirt"))
    assert f"registry.example/{vm.image.name}:v1" in made


def test_an_answer_costs_something() -> None:
    cost = measure_cost(30, 100)
    assert (cost.nodes, cost.median > 0, cost.p99 >= cost.median) == (30, True, True)


def test_the_report_has_a_line_for_each_case(tmp_path: Path) -> None:
    costs = [AttemptCost(20, 1400, 0.1, 0.2, 0.05)]
    lines = markdown(FIGURES, costs).splitlines()
    assert sum(line.startswith("| ") for line in lines) == 1 + len(CASES) + 1 + 1
    assert markdown({}, costs).count("\n") == 3
    drawn = ET.fromstring(chart(FIGURES, LayersSize()))
    assert len([part for part in drawn.iter() if part.tag.endswith("rect")]) == 1 + 2 * len(CASES)
    write_json(tmp_path / "f.json", FIGURES, costs)
    assert json.loads((tmp_path / "f.json").read_text())["cases"].keys() == FIGURES.keys()
