"""As whom commands act on a real API server, by its audit log."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from .conftest import OwnPlane
from .support.lent import OPERATOR
from .support.program import run as program

ADMINS = "system:masters"


def test_every_request_of_a_command_is_one_of_the_impersonated_user(own_plane: OwnPlane, tmp_path: Path) -> None:
    """Dropped in silence, `install` and `uninstall` would write with the permissions of the user behind it."""
    plane = own_plane(controller_manager=True)
    log = plane.requests_of(OPERATOR)
    kubeconfig = plane.kubeconfig_for(OPERATOR, [ADMINS])
    document = json.loads(kubeconfig.read_text())
    document["users"][0]["user"] |= {
        "as": "ann",
        "as-uid": "1234",
        "as-groups": [ADMINS, "ops"],
        "as-user-extra": {"acme.com/Reason": ["upgrade", "night"]},
    }
    acting = tmp_path / "kubeconfig"
    acting.write_text(yaml.safe_dump(document))

    def run(*arguments: str) -> int:
        return program(*arguments, f"--kubeconfig={acting}", check=False).exit_code

    # By the kubeconfig.
    before = len(log.requests())
    assert run("install", "--image=one", "--no-wait") == 0
    for arguments in (["doctor"], ["explain", "spread", "vm", "-n", "default"], ["uninstall"], ["cleanup"]):
        run(*arguments)
    requests = log.requests()[before:]
    assert {(line["verb"], line["objectRef"]["resource"]) for line in requests} >= {
        ("patch", "namespaces"),
        ("delete", "namespaces"),
        ("patch", "validatingwebhookconfigurations"),
        ("delete", "validatingwebhookconfigurations"),
        ("list", "virtualmachines"),
    }
    for line in requests:
        assert line["impersonatedUser"] == {
            "username": "ann",
            "uid": "1234",
            "groups": [ADMINS, "ops", "system:authenticated"],
            "extra": {"acme.com/reason": ["upgrade", "night"]},
        }, line

    # By the options, in place of the same fields: a user without permissions changes nothing.
    before = len(log.requests())
    assert run("install", "--image=one", "--no-wait", "--as=bob", "--as-group=interns", "--as-group=ops") == 2
    requests = log.requests()[before:]
    assert requests
    for line in requests:
        user = line["impersonatedUser"]
        assert (user["username"], user["groups"]) == ("bob", ["interns", "ops", "system:authenticated"])
    assert not plane.admin.list("admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")
