"""`expand` with a cluster: what it reads, and as whom."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from click.testing import Result

from tests.cli.expanding import BOTH, KUBEVIRT, MATCHED, expand
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.kubevirt.samples import instancetype, preference, vm
from webhook.cluster.objects import RESOURCES
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.resources import KUBEVIRTS


class TestLive:
    @asynccontextmanager
    async def cluster(self, tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, Callable[..., Any]]]:
        import asyncio

        async with running(FakeApiServer()) as server:
            kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")

            async def ask(*objects: Any, options: tuple[str, ...] = ()) -> Result:
                options = ("--kubeconfig", kubeconfig, *options)
                return await asyncio.to_thread(expand, *objects, options=options)

            yield server, ask

    def put(self, server: FakeApiServer, obj: dict[str, Any]) -> str:
        resource = RESOURCES[obj["kind"]]
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        server.put(resource, metadata["name"], namespace, **{k: v for k, v in obj.items() if k != "kind"})
        return resource.path(namespace, metadata["name"])

    async def test_exactly_what_is_needed_is_read(self, tmp_path: Path) -> None:
        labels = {f"instancetype.kubevirt.io/default-{kind}": kind for kind in ("instancetype", "preference")}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "golden", "labels": labels},
        }
        image = {
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataSource",
            "metadata": {"name": "i", "namespace": "golden"},
            "spec": {"source": {"pvc": {"name": "c", "namespace": "golden"}}},
        }
        machine = vm(
            {"volumes": [{"name": "root", "dataVolume": {"name": "d"}}]},
            instancetype={"inferFromVolume": "root"},
            preference={"inferFromVolume": "root"},
            dataVolumeTemplates=[
                {
                    "metadata": {"name": "d"},
                    "spec": {"sourceRef": {"kind": "DataSource", "name": "i", "namespace": "golden"}},
                }
            ],
        )
        async with self.cluster(tmp_path) as (server, ask):
            paths = [
                self.put(server, item)
                for item in (claim, image, instancetype(name="instancetype"), preference(name="preference"))
            ]
            server.put(KUBEVIRTS, "kubevirt", "kubevirt", status=KUBEVIRT["status"], spec=KUBEVIRT["spec"])
            result = await ask(machine)
            asked = [item.path for item in server.asked]

        vmi = yaml.safe_load(result.stdout)
        assert vmi["spec"]["domain"]["cpu"]["sockets"] == 2
        assert vmi["spec"]["domain"]["cpu"]["model"] == "Haswell"
        assert len(asked) == len(set(asked)), "nothing is asked twice"
        revisions = [path for path in asked if "controllerrevisions" in path]
        definitions = {DEFINITIONS.path("", name) for name in NAMES.values()}
        assert {*asked} == {*paths, KUBEVIRTS.path(), *definitions, *revisions}

    async def test_the_file_comes_first(self, tmp_path: Path) -> None:
        async with self.cluster(tmp_path) as (server, ask):
            self.put(server, instancetype(cpu={"guest": 8}))
            result = await ask(*MATCHED, KUBEVIRT)
            asked = [item.path for item in server.asked]

        assert yaml.safe_load(result.stdout)["spec"]["domain"]["cpu"]["sockets"] == 2
        assert all("controllerrevisions" in path or "customresourcedefinitions" in path for path in asked)

    async def test_what_may_not_be_read(self, tmp_path: Path) -> None:
        async with self.cluster(tmp_path) as (server, ask):
            server.fail(RESOURCES["VirtualMachineClusterPreference"].path("", "linux"), 403)
            refused = await ask(BOTH)
            server.fail(KUBEVIRTS.path(), 500)
            broken = await ask(BOTH)
            missing = await ask(BOTH)

        assert refused.exit_code == broken.exit_code == 2
        assert "grant get on virtualmachineclusterpreferences.instancetype.kubevirt.io" in refused.stderr
        assert broken.stderr.startswith("Error: KubeVirt: ")
        assert missing.exit_code == 1
        assert '"u1" not found' in missing.stderr
