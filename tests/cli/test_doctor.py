from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.runner import Command, Ended, Refused, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer
from tests.doctor.world import NS, DoctorWorld, cluster
from tests.golden_files import Golden
from webhook.k8s.resources import CONFIG_MAPS
from webhook.names import SITE

SETTINGS = """\
schedulers: {kubevirt: {healthCheck: lease kubevirt-scheduler/kubevirt-scheduler}}
kubevirt: {namespace: kubevirt}
tls: {secretName: ca}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DoctorWorld]:
    with in_thread(cluster(tmp_path)) as found:
        found.expect_reviews()
        # On a busy machine a command takes longer than a scheduler may be silent.
        found.lease(seconds=3600)
        found.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": SETTINGS})
        found.server.kubeconfig(tmp_path / "kubeconfig")
        # As these settings want them: they exclude more namespaces than the tests' own do.
        (tmp_path / "settings.yaml").write_text(SETTINGS)
        found.follow(tmp_path / "settings.yaml")
        yield found


@pytest.fixture
def doctor(tmp_path: Path, world: DoctorWorld) -> Callable[..., Result]:
    return partial(run, "doctor", "--kubeconfig", tmp_path / "kubeconfig")


def test_people_get_lines_in_columns_and_programs_json(doctor: Command, tmp_path: Path) -> None:
    result = doctor()

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("unknown certificates  Service kubevirt-webhook/kubevirt-webhook: ")
    assert lines[1].startswith(" " * 22 + "→ ")
    assert lines[2].startswith("ok                    MutatingWebhookConfiguration kubevirt-webhook: ")
    assert lines[-1].startswith("1 unknown, ")
    # What is unknown fails only where it is asked for.
    assert doctor("--strict").exit_code == 3
    result = doctor("--config", tmp_path / "settings.yaml", "-o", "json")
    report = json.loads(result.output)
    assert (result.exit_code, report["schemaVersion"], report["verdict"]) == (0, 1, "unknown")
    assert [each["see"] for each in report["findings"]] == [
        f"{SITE}/doctor#{each['check']}" for each in report["findings"]
    ]


def test_failures_come_first_and_fail(world: DoctorWorld, doctor: Command, tmp_path: Path) -> None:
    world.deployment(ready=0)
    world.namespace("a", labels={"kubevirt-webhook.github.io/\x1b[31m": "x"})

    for options in ((), ("--strict",)):
        result = doctor(*options)
        assert result.exit_code == 1
        assert result.output.startswith("failure deployment    Deployment kubevirt-webhook/kubevirt-webhook: 0/2 ")
        # Other people's text can't reach the terminal.
        assert "\x1b" not in result.output
    assert run("doctor", "--cluster-from", world.write(tmp_path / "dump")).exit_code == 1


def test_a_url_that_can_t_be_one(doctor: Command, ended: Ended) -> None:
    ended(doctor("--url", "http://localhost"), 2)


def test_a_server_elsewhere(doctor: Command) -> None:
    result = doctor("--url", "https://localhost:1/", "-o", "json")

    assert result.exit_code == 1
    found = [(finding["code"], finding["subject"]) for finding in json.loads(result.output)["findings"]]
    assert "field-differs:clientConfig" in {code for code, _ in found}
    assert [code for code, subject in found if subject == "https://localhost:1"] == ["served-not-reached"]


def test_a_cluster_that_is_not_there(tmp_path: Path, ended: Ended) -> None:
    server = FakeApiServer()
    server.url = "http://127.0.0.1:1"
    ended(run("doctor", "--kubeconfig", server.kubeconfig(tmp_path / "nobody")), 2)


def test_the_same_advice_is_given_once(world: DoctorWorld, doctor: Command) -> None:
    world.opt_in("a", scheduling="yes")
    world.opt_in("b", scheduling="no")

    output = doctor().output

    assert output.count("has the invalid value") == 2
    assert output.count("→ use ") == 1
    assert "\n2 warnings, 1 unknown, " in output


def test_failures_and_warnings_of_a_check_end_with_where_to_read_on(world: DoctorWorld, doctor: Command) -> None:
    world.opt_in("a", scheduling="yes")
    world.opt_in("b", scheduling="no")

    lines = doctor().output.splitlines()

    (last,) = (index for index, line in enumerate(lines) if "doctor#" in line)
    assert lines[last].strip() == f"see {SITE}/doctor#opt-in"
    # After the advice, before what is in order.
    assert (lines[last - 1].lstrip().startswith("→ "), lines[last + 1].startswith("ok ")) == (True, True)


def test_files_instead_of_a_cluster(world: DoctorWorld, tmp_path: Path, golden: Golden) -> None:
    dump = world.write(tmp_path / "dump")
    result = run("doctor", "--cluster-from", dump)

    assert result.exit_code == 0
    golden(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE", result.output))
    assert run("doctor", "--cluster-from", dump, "--strict").exit_code == 3, "what files do not show is unknown"
    # They exclude a cluster, and must be there.
    for options in (("--kubeconfig", "x"), ("--as", "jane")):
        result = run("doctor", "--cluster-from", dump, *options)
        assert (result.exit_code, "exclude each other" in result.output) == (2, True)
    missing = run("doctor", "--cluster-from", tmp_path / "none")
    assert (missing.exit_code, missing.output.count("\n")) == (2, 1)


def test_files_without_settings(tmp_path: Path, ended: Ended) -> None:
    (tmp_path / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: a}}")
    ended(run("doctor", "--cluster-from", tmp_path / "node.yaml"), 2)


@pytest.mark.parametrize("data", ["3", "{settings.yaml: 3}", "[a]"])
def test_settings_of_a_wrong_type_in_the_files_are_not_missing(tmp_path: Path, data: str, refused: Refused) -> None:
    """ "Add it to them" would be answered: it is there."""
    metadata = "{name: kubevirt-webhook, namespace: kubevirt-webhook}"
    (tmp_path / "a.yaml").write_text(f"{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}, data: {data}}}")

    result = run("doctor", "--cluster-from", tmp_path / "a.yaml")
    refused(result)
    assert "the files hold no ConfigMap" not in result.stderr
