"""One pass over what an installation is: made, asked by the API server, and removed. CI runs it."""

from __future__ import annotations

from tests.e2e.support.kube import eventually

from .support import IMAGE, NAMESPACE, USER, NodeInstallation, servers, status_of


def test_installed_asked_and_removed(node: NodeInstallation) -> None:
    node.install()
    node.offer_namespace()

    assert node.images() == {IMAGE}
    assert {pod["spec"]["nodeName"] for pod in node.pods()} == {"node-1", "node-2"}
    assert [status_of(process)["Uid"].split()[0] for process in servers()] == [str(USER)] * 2
    labels = node.admin.get("v1/namespaces", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    eventually(node.is_trusted, what="every entry to have a caBundle")

    assert node.run("uninstall").stdout.endswith("\nuninstalled\n")
    eventually(lambda: not servers(), what="the replicas to end")
