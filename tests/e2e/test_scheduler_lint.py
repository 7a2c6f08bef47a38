"""What `scheduler lint` calls an error of fields and plugins is what the real kube-scheduler does not start with."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import yaml

from webhook.cli.data import directory
from webhook.install.schedulers.lint import LintTarget, lint
from webhook.install.schedulers.render import configuration
from webhook.k8s.yaml_documents import Document

from .support.kube import Json
from .support.pki import kubeconfig

MUTATIONS = 60
STRICT = ("invalid-field", "unknown-plugin")
ARGUMENTS: dict[str, Json] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": 10},
    "InterPodAffinity": {"hardPodAffinityWeight": 1},
    "NodeAffinity": {
        "addedAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}
            ]
        }
    },
    "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
    "NodeResourcesFit": {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}],
    },
    "VolumeBinding": {"bindTimeoutSeconds": 5},
}


def rich() -> Json:
    """A configuration with most fields, and the arguments of each plugin that has a type for them."""
    written: Json = yaml.safe_load(configuration(directory("manifests"), "spread"))
    written["profiles"][0]["pluginConfig"] = [
        {"name": name, "args": args} for name, args in copy.deepcopy(ARGUMENTS).items()
    ]
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "httpTimeout": "1s", "ignorable": True}
    return written | {
        "leaderElection": {"leaderElect": False, "leaseDuration": "15s", "resourceLock": "leases"},
        "extenders": [extender | {"managedResources": [{"name": "example.com/a"}]}],
        "parallelism": 16,
        "podMaxBackoffSeconds": 10,
    }


def mutated(random: Random) -> Json:
    """The configuration with a field misspelled, of another type, added, or with a plugin of another name."""
    written = rich()
    objects: list[Json] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            objects.append(value)
        for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(below)

    walk({key: each for key, each in written.items() if key not in ("apiVersion", "kind", "clientConnection")})
    objects[0] = written
    place = random.choice(objects)
    keys = [key for key in place if key not in ("apiVersion", "kind", "clientConnection")]
    key = random.choice(keys)
    match random.choice(["misspell", "case", "add", "type", "plugin", "null"]):
        case "misspell":
            place[key[:-2] + key[-1:]] = place.pop(key)
        case "case":
            place[key[0].swapcase() + key[1:]] = place.pop(key)
        case "add":
            place["example"] = 1
        case "type":
            place[key] = {"a": 1} if isinstance(place[key], str | list) else [1]
        case "null":
            place[key] = None if key not in ("name", "profiles") else place[key]
        case _:
            point = random.choice(["score", "filter", "multiPoint"])
            name = random.choice(["ImageLocalty", "imageLocality", "NodeAffinity"])
            part = random.choice(["enabled", "disabled"])
            written["profiles"][0]["plugins"] = {point: {part: [{"name": name}]}}
    return written


def test_errors_are_what_the_real_scheduler_refuses(kube_scheduler: Path, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(kubeconfig("http://127.0.0.1:1", None, {}))
    random, refused = Random(28), []
    for number in range(MUTATIONS):
        written = mutated(random) if number else rich()
        written["clientConnection"] = {"kubeconfig": str(tmp_path / "kubeconfig")}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
        # It validates the configuration and builds all plugins, writes what it has understood, and ends.
        command = [str(kube_scheduler), "--config", str(tmp_path / "config.yaml")]
        done = subprocess.run(
            [*command, "--write-config-to", str(tmp_path / "out.yaml")],
            capture_output=True,
            text=True,
            check=False,
        )
        problems = lint(Document(written, "f.yaml", 1), LintTarget(is_the_clusters=True))
        found = [each.text for each in problems if each.code in STRICT and each.severity == "error"]
        strict = ("strict decoding error", "cannot unmarshal", "does not exist")
        # What it rejects for another reason, for example a score of no weight, is not of these two rules.
        if done.returncode and not any(word in done.stderr for word in strict):
            continue
        assert bool(done.returncode) == bool(found), (done.stderr[-400:], found, json.dumps(written))
        refused.append(bool(done.returncode))
    assert refused[0] is False
    assert refused.count(True) > MUTATIONS // 3
    assert refused.count(False) > 5
