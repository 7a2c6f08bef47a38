"""Without its line in the registry, nothing of a policy is left, and the others work."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.error
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from certs.pem import Pair
from certs.source import self_signed
from tests.cli.runner import EXAMPLES, run
from tests.cli.test_serve import FILES, Serving, example, serving
from tests.doctor.world import cluster
from tests.policies.eviction import world as eviction
from webhook import names
from webhook.forecast import report
from webhook.policies.meanings import MEANINGS
from webhook.policies.registry import BY_PATH, POLICIES
from webhook.policy import AnyPolicy
from webhook.settings_file import default_settings

ROOT = Path(__file__).parents[2]
NAMES = [policy.name for policy in POLICIES]


class Ended(NamedTuple):
    code: int
    output: str
    error: str


def without(policy: str, *commands: Iterable[str]) -> list[Ended]:
    """What commands end with in a program without a policy."""
    given = json.dumps([list(each) for each in commands])
    command = [sys.executable, "-m", "tests.policies.without", policy]
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [Ended(**each) for each in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, list[str]]:
    made, directory = self_signed(["localhost", "127.0.0.1"]), tmp_path_factory.mktemp("pair")
    (directory / "crt").write_bytes(made.certificate)
    (directory / "key").write_bytes(made.key)
    return made, ["--tls-cert", str(directory / "crt"), "--tls-key", str(directory / "key")]


def answers(server: Serving) -> dict[str, list[Any]]:
    """What each path answers to every example for its resource; the status where there is no such path."""
    reviews = [example(file.name) for file in sorted((EXAMPLES / "reviews").glob("*.yaml"))]
    reviews.append(json.dumps(eviction.review()).encode())
    found: dict[str, list[Any]] = {}
    for path, endpoint in BY_PATH.items():
        for body in reviews:
            request = json.loads(body)["request"]
            if (request["resource"]["resource"], request.get("subResource", "")) == (
                endpoint.resource,
                endpoint.sub_resource,
            ):
                try:
                    answer: Any = server.post(body, path)
                except urllib.error.HTTPError as error:
                    answer = error.code
                found.setdefault(path, []).append(answer)
    return found


@pytest.fixture(scope="module")
def whole(pair: tuple[Pair, list[str]]) -> dict[str, list[Any]]:
    with serving(*FILES, *pair[1], pair=pair[0]) as server:
        return answers(server)


@pytest.mark.parametrize("removed", NAMES)
def test_its_paths_are_gone_and_the_others_answer_as_before(
    removed: str, whole: dict[str, list[Any]], pair: tuple[Pair, list[str]]
) -> None:
    with serving(*FILES, *pair[1], pair=pair[0], program=("tests.policies.without", removed)) as server:
        found = answers(server)
    for path, expected in whole.items():
        assert found[path] == ([404] * len(expected) if BY_PATH[path].policy == removed else expected), path
    recorded = {BY_PATH[line["endpoint"]].policy for line in server.audit}  # type: ignore[attr-defined]
    assert recorded == {*NAMES} - {removed}


def entries(text: str) -> list[dict[str, Any]]:
    return [entry for each in yaml.safe_load_all(text) for entry in each.get("webhooks") or ()]


@pytest.mark.parametrize("removed", POLICIES, ids=NAMES)
def test_configurations_settings_and_pages_have_nothing_of_it(removed: AnyPolicy, tmp_path: Path) -> None:
    commands = [
        ["manifests", "webhooks"],
        ["manifests", "policies"],
        ["config", "show"],
        ["page", "messages"],
        ["page", "settings"],
    ]
    assert {each.policy for each in BY_PATH.values()} == {*NAMES}
    webhooks, policies, shown, messages, settings = without(removed.name, *commands)

    own = f".{removed.name}."
    assert entries(webhooks.output) == [
        entry for entry in entries(run("manifests", "webhooks").stdout) if own not in entry["name"]
    ], "the others keep their order: list each policy behind those that it `follows`"
    made = tuple(each.name for each in removed.admission_policies(default_settings().policy(removed.name)))
    assert [*yaml.safe_load_all(policies.output)] == [
        each
        for each in yaml.safe_load_all(run("manifests", "policies").stdout)
        if not each["metadata"]["name"].startswith(made)
    ]
    expected = yaml.safe_load(run("config", "show").output)
    del expected[removed.name]
    assert yaml.safe_load(shown.output) == expected
    codes = {code for code, meaning in MEANINGS.items() if meaning.policies != (removed.name,)}
    assert set(re.findall(r"^### `(.+)`$", messages.output, re.MULTILINE)) == codes | report.MEANINGS.keys()
    assert f"## {removed.name}" in (ROOT / "docs" / "reference" / "settings.md").read_text()
    sections = set(re.findall(r"^## (\w+)$", settings.output, re.MULTILINE))
    assert sections >= {*NAMES} - {removed.name}
    assert removed.name not in sections


@pytest.mark.parametrize("removed", NAMES)
def test_its_section_in_a_settings_file_is_unknown(removed: str, tmp_path: Path) -> None:
    own, others = tmp_path / "own.yaml", tmp_path / "others.yaml"
    own.write_text(f"{removed}: {{clusterWide: true}}\n")
    others.write_text("".join(f"{each}: {{clusterWide: true}}\n" for each in NAMES if each != removed))

    wrong, right = without(removed, ["config", "check", str(own)], ["config", "check", str(others)])

    assert (wrong.code, wrong.output, len(wrong.error.splitlines())) == (2, "", 1)
    assert wrong.error.startswith(f"Error: {own}:1: {removed}: unknown setting; ")
    assert right.code == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The objects of a cluster in which every policy is enforced in a namespace."""
    directory = tmp_path_factory.mktemp("doctor")

    async def write() -> Path:
        async with cluster(directory) as world:
            world.opt_in("demo", **dict.fromkeys(NAMES, names.ENFORCE))
            return world.write(directory / "objects")

    return asyncio.run(write())


@pytest.mark.parametrize("removed", NAMES)
def test_doctor_checks_the_others(removed: str, files: Path) -> None:
    config = ["--config", str(files.parent / "settings.yaml")]
    (files.parent / "settings.yaml").write_text("schedulers: {kubevirt: {healthCheck: pods}}\n")
    (done,) = without(removed, ["doctor", "--cluster-from", str(files), *config, "-o", "json"])
    findings = json.loads(done.output)["findings"]
    found = {each["code"]: each for each in findings}

    own = {"instancetypes": "pools", "migration": "pinning", "defaults": "defaults", "groups": "groups"}
    assert {each["check"] for each in findings} & {*own.values()} == {own[each] for each in own if each != removed}
    counted = found["opted-in"]["found"]
    assert [each for each in NAMES if f"{each}: 1 enforce" in counted] == [each for each in NAMES if each != removed]
    # The label that is left has no effect, and it says so.
    assert f'label "{names.policy_label(removed)}" is unknown' in found["label-unknown"]["found"]
