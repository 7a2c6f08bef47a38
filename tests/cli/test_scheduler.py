from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.runner import run
from tests.install.schedulers.configurations import configuration, profile
from webhook.install.schedulers.render import VARIANTS

CLEAN = (0, "0 errors, 0 warnings\n")


def written(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False))
    return path


def lint(path: str | Path, *options: str, stdin: str | None = None) -> tuple[int, str]:
    result = run("scheduler", "lint", path, *options, stdin=stdin)
    return result.exit_code, result.output


@pytest.mark.parametrize("whose", [(), ("--cluster-scheduler",)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_printed_has_no_mistakes(variant: str, whose: tuple[str, ...], tmp_path: Path) -> None:
    assert lint(written(tmp_path, run("scheduler", "render", variant, *whose).output), *whose) == CLEAN


@pytest.mark.parametrize("url", ["http://127.0.0.1:8446", "https://layers.example:8446/", "http://[::1]:1/v1/layers"])
@pytest.mark.parametrize("variant", ["spread", "pack"])
def test_the_extender_for_layers_has_no_mistakes(variant: str, url: str, tmp_path: Path) -> None:
    path = written(tmp_path, run("scheduler", "render", variant, "--layers", url).output)
    (extender,) = yaml.safe_load(path.read_text())["extenders"]

    assert lint(path) == CLEAN
    assert extender["urlPrefix"] == url.partition("/v1")[0].rstrip("/") + "/v1/layers"
    assert extender["prioritizeVerb"] == "prioritize"
    assert (extender["ignorable"], extender["nodeCacheCapable"]) == (True, True)
    # A plugin that does more than score could keep pods from being placed.
    assert not {"filterVerb", "bindVerb", "preemptVerb", "managedResources"} & extender.keys()
    assert ("tlsConfig" in extender) is url.startswith("https")


@pytest.mark.parametrize(
    "url",
    ["", "x", "127.0.0.1:8446", "http://a", "ftp://a:1", "http://a:b", "http://a:1/x", "http://a:1?x", "http://["],
)
def test_what_is_no_url_of_an_extender_is_bad_input(url: str) -> None:
    assert run("scheduler", "render", "spread", "--layers", url).exit_code == (2 if url else 0)


def test_problems_have_a_line_and_end_in_status_1(tmp_path: Path) -> None:
    path = written(tmp_path, configuration(profile(), profile()))

    result = run("scheduler", "lint", path, "-o", "json")

    (problem,) = json.loads(result.stdout)
    line = path.read_text().splitlines().index("- schedulerName: kubevirt", 8) + 1
    assert (result.exit_code, problem["code"], problem["where"]) == (1, "duplicate-profile", f"{path}:{line}")


def test_a_warning_alone_is_status_0(tmp_path: Path) -> None:
    status, output = lint(written(tmp_path, configuration(profile(plugins={}))))
    assert status == 0
    assert "[image-locality-on]" in output
    assert output.endswith("0 errors, 1 warning\n")


def test_a_configuration_in_a_config_map_is_read_too(tmp_path: Path) -> None:
    inner = yaml.safe_dump(configuration(profile("vms")))
    path = written(tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": inner}})
    assert lint(path, "--profile", "vms") == CLEAN
    assert lint(path)[0] == 1
    assert lint("-", stdin=yaml.safe_dump(configuration())) == CLEAN


@pytest.mark.parametrize("value", [{}, {"kind": "Pod"}, [1], "text", None])
def test_a_file_without_a_configuration_is_bad_input(value: object, tmp_path: Path) -> None:
    assert lint(written(tmp_path, value) if value is not None else tmp_path / "none.yaml")[0] == 2


def test_a_prometheus_is_asked_where_one_is_given() -> None:
    rendered = run("scheduler", "render", "load-aware", "--prometheus", "http://p:9090")
    assert 'address: "http://p:9090"' in rendered.output
    assert run("scheduler", "render", "spread", "--prometheus", "http://p:9090").exit_code == 2
