"""The listeners that only `kubectl port-forward` reaches: the page on its loopback address, and the ops listener."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tests.e2e.support.kube import eventually
from tests.e2e.support.pki import ADMIN

from .support import IMAGE, NAMESPACE, ROOT, SETTINGS, SHOP, NodeInstallation, accepts

PAGE = (ROOT / "docs" / "page.md").read_text()
PORT = 8091
OPS = 8080


@pytest.fixture(scope="module")
def with_page(node: NodeInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInstallation]:
    """An installation with the page as its documentation switches it on; without it afterwards."""
    (line,) = re.findall(r"^page: .*$", PAGE, re.MULTILINE)
    settings = tmp_path_factory.mktemp("page") / "settings.yaml"
    settings.write_text(f"{line}\n" + "".join(f"{name}: {json.dumps(part)}\n" for name, part in SETTINGS.items()))
    node.run("install", f"--config={settings}", f"--image={IMAGE}")
    node.offer_namespace()
    yield node
    node.install()


@contextlib.contextmanager
def forwarded(node: NodeInstallation, command: list[str], port: int) -> Iterator[None]:
    """`kubectl port-forward` while the context is open."""
    words = [str(node.binaries / "kubectl"), f"--kubeconfig={node.kubeconfig_for(*ADMIN)}", *command]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: accepts("127.0.0.1", port), what="kubectl to forward")
            yield
        finally:
            process.terminate()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_page_is_forwarded_by_the_documented_command(with_page: NodeInstallation) -> None:
    (command,) = re.findall(r"^\$ kubectl (.* port-forward deployment/\S+ \S+)$", PAGE, re.MULTILINE)
    with forwarded(with_page, command.split(), PORT):
        status, overview = get(PORT, "/page")
        assert status == 200
        assert "<!doctype html>" in overview.lower()


def test_the_pages_show_decisions_to_no_web_site(with_page: NodeInstallation) -> None:
    with contextlib.ExitStack() as pages:
        ports = []
        for number, pod in enumerate(with_page.ready_pods(), PORT + 1):
            where = ["-n", NAMESPACE, "port-forward", f"pod/{pod['metadata']['name']}", f"{number}:{PORT}"]
            pages.enter_context(forwarded(with_page, where, number))
            ports.append(number)

        def shown() -> list[int]:
            with_page.try_vm()
            return [port for port in ports if SHOP in get(port, "/page/decisions")[1]]

        # The API server keeps its connections, so all reviews may go to one of the replicas.
        port = eventually(shown, what="a decision on the page of a replica")[0]
        # A web site that gave its own name this address reads nothing.
        status, text = get(port, "/page/decisions", host="evil.example")
        assert status >= 400
        assert SHOP not in text


def test_the_page_is_on_no_other_address(with_page: NodeInstallation) -> None:
    for pod in with_page.ready_pods():
        assert not accepts(pod["status"]["podIP"], PORT)
        assert accepts(pod["status"]["podIP"], OPS)
    service = with_page.admin.get("v1/services", NAMESPACE, NAMESPACE)
    assert PORT not in {port["port"] for port in service["spec"]["ports"]}
