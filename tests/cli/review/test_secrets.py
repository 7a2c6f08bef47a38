"""Secrets in reviewed objects: no output shows them unless an option requests it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.cli.review.samples import CLUSTER, SECRET, manifest, vm
from tests.cli.runner import run
from webhook.admission.decision import Change, Decision, Denial, Reason
from webhook.review import endpoints


def test_secrets_are_shown_only_on_request(tmp_path: Path) -> None:
    obj = vm()
    obj["spec"]["template"]["spec"]["volumes"] = [{"name": "c", "cloudInitNoCloud": {"userData": SECRET}}]
    path = manifest(tmp_path, obj)

    for output in ("text", "json", "yaml", "patch"):
        assert SECRET not in run("review", path, *CLUSTER, "-o", output).stdout
    assert SECRET in run("review", path, *CLUSTER, "-o", "yaml", "--show-secrets").stdout


def test_redacted_output_says_so(tmp_path: Path) -> None:
    obj = vm()
    obj["spec"]["template"]["spec"]["volumes"] = [{"name": "c", "cloudInitNoCloud": {"userData": SECRET}}]

    assert "secrets are redacted" in run("review", manifest(tmp_path, obj), *CLUSTER, "-o", "yaml").stderr
    assert "redacted" not in run("review", manifest(tmp_path, vm()), *CLUSTER, "-o", "yaml").stderr


def test_control_characters_are_shown_not_obeyed(tmp_path: Path) -> None:
    obj = vm()
    obj["metadata"]["name"] = "a\x1b[31mb"

    output = run("review", manifest(tmp_path, obj), *CLUSTER).stdout
    assert "\x1b" not in output
    assert r"a\x1b[31mb" in output


HEADER = "Basic hunter2canary"


PRESIGNED = "https://b.s3.amazonaws.com/d.img?X-Amz-Signature=hunter2canary"


def with_secrets() -> dict[str, Any]:
    """A VM in which the probe logs in, as it would be patched: the whole template is new to it."""
    obj = vm()
    header = {"name": "Authorization", "value": HEADER}
    obj["spec"]["template"]["spec"]["readinessProbe"] = {"httpGet": {"port": 80, "httpHeaders": [header]}}
    obj["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "d"}, "spec": {"source": {"http": {"url": PRESIGNED}}}}]
    obj["metadata"]["annotations"] = {"example.com/token": "hunter2canary"}
    return obj


def patching(view: Any, request: Any, facts: Any, settings: Any) -> Decision:
    """A policy that changes all that holds a secret."""
    secrets = with_secrets()
    paths = ("spec", "template", "spec", "readinessProbe"), ("spec", "dataVolumeTemplates"), ("metadata", "annotations")
    values = []
    for path in paths:
        value: Any = secrets
        for segment in path:
            value = value[segment]
        values.append(value)
    changes = tuple(Change(path, None, value, "r") for path, value in zip(paths, values, strict=True))
    return Decision(
        (Reason("r", f"as {HEADER} and {PRESIGNED} say"),), changes, warnings=(Reason("r", f"see {PRESIGNED}"),)
    )


@pytest.mark.parametrize("output", ["text", "json", "yaml", "patch", "junit", "sarif", "github"])
@pytest.mark.parametrize("mode", ["patch", "deny"])
def test_no_output_shows_secrets_but_when_they_are_asked_for(
    output: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denying(view: Any, request: Any, facts: Any, settings: Any) -> Decision:
        made = patching(view, request, facts, settings)
        return Decision(made.reasons, made.changes, Denial(403, f"{PRESIGNED} is not allowed"))

    endpoint = next(e for e in endpoints.ENDPOINTS if e.path == "/mutate/instancetypes/virtualmachines/enforce")
    changed = msgspec.structs.replace(endpoint, handler=patching if mode == "patch" else denying)
    monkeypatch.setattr("webhook.cli.requests.ENDPOINTS", (changed,))
    obj = with_secrets() | {"spec": builders.vm()["spec"]}
    obj["metadata"]["namespace"] = "apps"
    given = manifest(tmp_path, obj)

    hidden = run("review", given, *CLUSTER, "-o", output)
    assert "hunter2canary" not in hidden.stdout + hidden.stderr
    assert "AAAA" not in hidden.stdout
    if mode == "patch" and output in ("text", "json", "yaml", "patch"):
        assert "<redacted" in hidden.stdout
        assert ("secrets are redacted" in hidden.stderr) is (output != "text")
        assert "hunter2canary" in run("review", given, *CLUSTER, "-o", output, "--show-secrets").stdout


def test_what_a_terminal_would_obey_is_shown(tmp_path: Path) -> None:
    obj = vm()
    obj["metadata"]["name"] = "web\u202e\x1b[31m01\nok"
    path = tmp_path / "a\x1b[2J.yaml"
    path.write_text(json.dumps(obj))

    text = run("review", path, *CLUSTER).stdout
    assert "shop/web\\u202e\\x1b[31m01\\nok" in text
    assert "a\\x1b[2J.yaml:1" in text
    broken = tmp_path / "b\x1b[2J\n.yaml"
    broken.write_text("a: [")
    refused = run("review", broken)
    assert refused.exit_code == 2
    assert "\x1b" not in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    for output in ("json", "yaml", "patch"):
        assert all(char.isprintable() or char == "\n" for char in run("review", path, *CLUSTER, "-o", output).stdout)
