"""The kubectl plugin with the real krew: its validator accepts the manifest, and it installs what runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from hack import plugin
from hack.controlplane.bundles import KREW, Bundle
from webhook import __version__
from webhook.cli.main import main

from .support.kube import PATIENCE
from .support.loopback import LoopbackServer, reply

pytestmark = pytest.mark.builds("krew")


@dataclass
class PublishedPlugin:
    """The archive and the manifest, as they are behind the URL that the manifest names, and krew with its validator.

    The environment is that of a user who has kubectl, krew, and the interpreter that the plugin needs.
    """

    archive: Path
    manifest: Path
    tools: Path
    environment: dict[str, str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )


@pytest.fixture(scope="module")
def krew(built: Callable[[Bundle], Path]) -> Path:
    return built(KREW)


@pytest.fixture(scope="module")
def published(krew: Path, binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublishedPlugin]:
    folder = tmp_path_factory.mktemp("krew")
    with LoopbackServer(lambda handler: reply(handler, (folder / handler.path.strip("/")).read_bytes())) as server:
        archive, manifest = plugin.build(folder, f"http://{server.address}", 1)
        path, root = folder / "bin", folder / "root"
        path.mkdir()
        (path / "kubectl-krew").symlink_to(krew / "krew")
        (path / "kubectl").symlink_to(binaries / "kubectl")
        (path / plugin.PYTHON).symlink_to(_interpreter())
        environment = {
            "PATH": f"{root / 'bin'}:{path}:/usr/bin:/bin",
            "HOME": str(folder),
            "KREW_ROOT": str(root),
            "KREW_NO_UPGRADE_CHECK": "1",
        }
        yield PublishedPlugin(archive, manifest, krew, environment)


def _interpreter() -> str:
    """The interpreter that this environment was made with, without its packages."""
    return shutil.which(plugin.PYTHON, path=f"{sys.base_prefix}/bin") or sys.executable


def test_the_validator_of_krews_index_accepts_the_manifest(published: PublishedPlugin) -> None:
    """It also installs the plugin for each platform from where the manifest says, and looks for its license."""
    validator = str(published.tools / "validate-krew-manifest")
    done = published.run(validator, "-manifest", str(published.manifest))
    assert done.returncode == 0, done.stderr

    # It can fail: a manifest whose archive is another one.
    other = published.manifest.with_name("other") / published.manifest.name
    other.parent.mkdir()
    changed = yaml.safe_load(published.manifest.read_text())
    changed["spec"]["platforms"][0]["sha256"] = "0" * 64
    other.write_text(yaml.safe_dump(changed))
    assert published.run(validator, "-manifest", str(other)).returncode != 0


def test_krew_installs_the_plugin_and_kubectl_runs_it(published: PublishedPlugin) -> None:
    where = ["--manifest", str(published.manifest), "--archive", str(published.archive)]
    installed = published.run("kubectl", "krew", "install", *where)
    assert installed.returncode == 0, installed.stderr

    version = published.run("kubectl", "kubevirt-webhook", "version")
    assert version.stdout.startswith(f"kubevirt-webhook {__version__}\n"), version
    listed = published.run("kubectl", "kubevirt-webhook", "--help").stdout
    assert "kubectl kubevirt-webhook" in listed
    assert all(name in listed for name in main.list_commands(click.Context(main)))
    root = Path(published.environment["KREW_ROOT"])
    (examples,) = root.glob("store/*/*/lib/webhook/_data/examples")
    tested = published.run("kubectl", "kubevirt-webhook", "test", str(examples))
    assert (tested.returncode, tested.stderr.splitlines()[-1].split(";")[0].split(", ")[1]) == (0, "0 failed"), tested
