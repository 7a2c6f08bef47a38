from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.runner import run
from tests.doctor.world import NS, DoctorWorld, cluster
from webhook.doctor.installation import CONFIG_MAPS

SETTINGS = """\
schedulers: {kubevirt: {healthCheck: lease kubevirt-scheduler/kubevirt-scheduler}}
kubevirt: {namespace: kubevirt}
tls: {secretName: ca}
"""


def without_dates(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE", text)


@contextmanager
def well(directory: Path) -> Iterator[DoctorWorld]:
    """A cluster in a thread: the command has a loop of its own."""
    loop, started, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[DoctorWorld] = []

    async def serve() -> None:
        async with cluster(directory) as world:
            world.expect_reviews()
            world.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": SETTINGS})
            world.server.kubeconfig(directory / "kubeconfig")
            found.append(world)
            started.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DoctorWorld]:
    with well(tmp_path) as found:
        # As these settings want them: they exclude more namespaces than the tests' own do.
        (tmp_path / "settings.yaml").write_text(SETTINGS)
        found.follow(tmp_path / "settings.yaml")
        yield found


def test_people_get_lines_in_columns_and_no_failure(world: DoctorWorld, tmp_path: Path) -> None:
    result = run("doctor", "--kubeconfig", tmp_path / "kubeconfig")

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("unknown certificates  Service kubevirt-webhook/kubevirt-webhook: ")
    assert lines[1].startswith(" " * 22 + "→ ")
    assert lines[2].startswith("ok                    MutatingWebhookConfiguration kubevirt-webhook: ")
    assert lines[-1].startswith("1 unknown, ")


def test_programs_get_json(world: DoctorWorld, tmp_path: Path) -> None:
    result = run(
        "doctor", "--kubeconfig", tmp_path / "kubeconfig", "--config", tmp_path / "settings.yaml", "-o", "json"
    )

    report = json.loads(result.output)
    assert result.exit_code == 0
    assert (report["schemaVersion"], report["verdict"]) == (1, "unknown")


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 3)])
def test_what_is_unknown_fails_only_where_asked_for(
    world: DoctorWorld, tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    assert run("doctor", "--kubeconfig", tmp_path / "kubeconfig", *options).exit_code == status


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_failures_come_first_and_fail(world: DoctorWorld, tmp_path: Path, options: tuple[str, ...]) -> None:
    world.deployment(ready=0)

    result = run("doctor", "--kubeconfig", tmp_path / "kubeconfig", *options)

    assert result.exit_code == 1
    assert result.output.startswith("failure deployment    Deployment kubevirt-webhook/kubevirt-webhook: 0/2 ")


def test_other_peoples_text_can_t_reach_the_terminal(world: DoctorWorld, tmp_path: Path) -> None:
    world.namespace("a", labels={"kubevirt-webhook.github.io/\x1b[31m": "x"})

    assert "\x1b" not in run("doctor", "--kubeconfig", tmp_path / "kubeconfig").output


def test_a_url_that_can_t_be_one(world: DoctorWorld, tmp_path: Path, golden: Callable[[str], None]) -> None:
    result = run("doctor", "--kubeconfig", tmp_path / "kubeconfig", "--url", "http://localhost")

    assert result.exit_code == 2
    golden(result.output)


def test_a_server_elsewhere(world: DoctorWorld, tmp_path: Path) -> None:
    result = run("doctor", "--kubeconfig", tmp_path / "kubeconfig", "--url", "https://localhost:1/", "-o", "json")

    assert result.exit_code == 1
    findings = json.loads(result.output)["findings"]
    assert "field-differs:clientConfig" in {finding["code"] for finding in findings}
    assert [finding["code"] for finding in findings if finding["subject"] == "https://localhost:1"] == [
        "served-not-reached"
    ]


def test_a_cluster_that_is_not_there(tmp_path: Path, golden: Callable[[str], None]) -> None:
    with well(tmp_path) as world:
        world.server.url = "http://127.0.0.1:1"
        config = world.server.kubeconfig(tmp_path / "nobody")

    result = run("doctor", "--kubeconfig", config)

    assert result.exit_code == 2
    golden(result.output)


def test_the_same_advice_is_given_once(world: DoctorWorld, tmp_path: Path) -> None:
    world.namespace("a", labels={"kubevirt-webhook.github.io/scheduling": "yes"})
    world.namespace("b", labels={"kubevirt-webhook.github.io/scheduling": "no"})

    output = run("doctor", "--kubeconfig", tmp_path / "kubeconfig").output

    assert output.count("has the invalid value") == 2
    assert output.count("→ use ") == 1
    assert "\n2 warnings, 1 unknown, " in output


# Objects from files.
@pytest.fixture
def dump(world: DoctorWorld, tmp_path: Path) -> Path:
    return world.write(tmp_path / "dump")


def test_files_instead_of_a_cluster(dump: Path, golden: Callable[[str], None]) -> None:
    result = run("doctor", "--cluster-from", dump)

    assert result.exit_code == 0
    golden(without_dates(result.output))


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 3)])
def test_what_files_do_not_show_is_unknown(dump: Path, options: tuple[str, ...], status: int) -> None:
    result = run("doctor", "--cluster-from", dump, "-o", "json", *options)

    report = json.loads(result.output)
    assert result.exit_code == status
    assert (report["schemaVersion"], report["verdict"]) == (1, "unknown")
    assert {each["verdict"] for each in report["findings"] if each["code"] == "needs-cluster"} == {"unknown"}


def test_a_failure_in_files_fails(world: DoctorWorld, tmp_path: Path) -> None:
    world.deployment(ready=0)

    assert run("doctor", "--cluster-from", world.write(tmp_path / "dump")).exit_code == 1


@pytest.mark.parametrize("options", [("--kubeconfig", "x"), ("--as", "jane")])
def test_files_and_a_cluster_exclude_each_other(dump: Path, options: tuple[str, ...]) -> None:
    result = run("doctor", "--cluster-from", dump, *options)

    assert result.exit_code == 2
    assert "exclude each other" in result.output


def test_files_without_settings(tmp_path: Path, golden: Callable[[str], None]) -> None:
    (tmp_path / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: a}}")

    result = run("doctor", "--cluster-from", tmp_path / "node.yaml")

    assert result.exit_code == 2
    golden(result.output)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    result = run("doctor", "--cluster-from", tmp_path / "none")

    assert result.exit_code == 2
    assert result.output.count("\n") == 1
