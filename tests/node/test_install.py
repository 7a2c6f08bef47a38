"""Installing, upgrading and removing, with kubelets that pull images and start containers."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from .support import IMAGE, MISSING, NAMESPACE, UPGRADED, NodeInstallation, NodeReviews


def test_an_upgrade_and_the_way_back_deny_nothing_and_miss_nothing(
    installed: NodeInstallation, load: NodeReviews
) -> None:
    for image in (UPGRADED, IMAGE):
        installed.install(image)
        assert installed.images() == {image}
        load.more()

    assert (load.denied, load.unchanged) == ([], 0)


def test_an_image_that_cannot_be_pulled_is_told_again_and_again_until_the_way_back(
    installed: NodeInstallation, load: NodeReviews
) -> None:
    failed = installed.install(MISSING, "--timeout=15", check=False)
    again = installed.run("install", "--timeout=10", check=False)

    for done in (failed, again):
        assert done.returncode == 2
        assert "ErrImagePull" in done.stderr or "ImagePullBackOff" in done.stderr
        assert f"kubectl -n {NAMESPACE} describe pod kubevirt-webhook-" in done.stderr
    assert "no changes" not in again.stdout
    report = json.loads(installed.run("doctor", "-o", "json", check=False).stdout)
    codes = {(finding["code"], finding["verdict"]) for finding in report["findings"]}
    assert ("rollout-stuck", "failure") in codes

    # The replicas of before serve all the time.
    load.more()
    installed.install(IMAGE)
    installed.wait_ready()
    assert (load.denied, load.unchanged) == ([], 0)


def test_an_interrupted_installation_is_continued(installed: NodeInstallation, load: NodeReviews) -> None:
    command = installed.command("install", f"--image={UPGRADED}")
    # Its output is read as it comes.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout
        for line in run.stdout:
            if line.startswith("waiting: "):
                break
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130

    installed.run("install")
    assert installed.images() == {UPGRADED}
    installed.install(IMAGE)
    assert (load.denied, load.unchanged) == ([], 0)


def test_uninstalling_denies_nothing_and_leaves_nothing(installed: NodeInstallation, load: NodeReviews) -> None:
    load.more()
    said = installed.run("uninstall").stdout

    assert said.endswith("\nuninstalled\n")
    load.more()
    assert load.denied == []
    assert installed.run("uninstall").stdout.endswith("\nkubevirt-webhook is not installed\n")
