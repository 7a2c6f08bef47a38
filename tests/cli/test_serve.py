"""`serve` as a process: what it logs at its start, which settings it rejects, and how it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certs.pem import Pair
from certs.source import self_signed
from tests import builders
from tests.admission.audit_schema import STRICT
from tests.cli.runner import EXAMPLES
from tests.cluster.fake_apiserver import FakeApiServer
from tests.golden_files import Golden
from tests.waiting import PATIENCE
from webhook.cli.main import main
from webhook.cli.serve import without_system_authorities
from webhook.errors import InputError
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.yaml_documents import read_documents
from webhook.server.runtime.options import Options

FILES = ["--cluster-from", str(EXAMPLES / "cluster")]
PODS = "/mutate/scheduling/pods/enforce"


class Serving:
    def __init__(self, process: subprocess.Popen[str], trust: ssl.SSLContext | None) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._trust = trust
        started = self.until("serving")
        self.address: str = started["address"]
        self.ops: str = started["ops"]

    def until(self, event: str) -> dict[str, Any]:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == event:
                return self.said[-1]
        raise AssertionError(f"never said {event}: {self.said}")

    def post(self, body: bytes, path: str = PODS) -> dict[str, Any]:
        request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=self._trust, timeout=PATIENCE) as answer:
            result: dict[str, Any] = json.load(answer)["response"]
        return result

    def get(self, path: str, event: str = "") -> str:
        """What is served beside the metrics, or at the address that was logged with an event."""
        (url,) = (each["address"] for each in self.said if each["event"] == event) if event else (self.ops,)
        with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
        return text


@contextmanager
def serving(
    *arguments: str, pair: Pair | None = None, end: int = signal.SIGTERM, program: tuple[str, ...] = ("webhook",)
) -> Iterator[Serving]:
    command = [sys.executable, "-m", *program, "serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
    trust = ssl.create_default_context(cadata=pair.authority.decode()) if pair else None
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            server = Serving(process, trust)
            yield server
        finally:
            process.send_signal(end)
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        server.said.extend(json.loads(line) for line in err.splitlines())
        server.audit = [json.loads(line) for line in out.splitlines()]  # type: ignore[attr-defined]
        for line in server.audit:  # type: ignore[attr-defined]
            STRICT.validate(line)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = self_signed(["localhost", "127.0.0.1"])
    (tmp_path / "crt").write_bytes(made.certificate)
    (tmp_path / "key").write_bytes(made.key)
    return made


def tls(tmp_path: Path) -> list[str]:
    return ["--tls-cert", str(tmp_path / "crt"), "--tls-key", str(tmp_path / "key")]


def example(name: str) -> bytes:
    (document,) = read_documents(EXAMPLES / "reviews" / name)
    return msgspec.json.encode(document.value)


def test_serves_records_explains_shows_and_ends(tmp_path: Path, pair: Pair) -> None:
    """With explanations and a page, and without traces, whose libraries no module of it loads."""
    config = tmp_path / "settings.yaml"
    more = "admin: {listen: '127.0.0.1:0'}\n"
    config.write_text((EXAMPLES / "settings.yaml").read_text() + more)
    with serving(*FILES, "--config", str(config), *tls(tmp_path), pair=pair) as server:
        response = server.post(example("01-launcher-pod.yaml"))
        asked = "/v1/explain/migration?namespace=shop&name=web&to=zone=b"
        explained = json.loads(server.get(asked, "serving admins"))
        decisions, decision, health, placement = (
            server.get(f"/page{path}", "serving admins")
            for path in ("/decisions", "/decisions/1", "/health", "/placement?namespace=shop&name=web")
        )
        metrics = server.get("/metrics")
        assert (server.get("/healthz"), server.get("/readyz")) == ("ok\n", "ok\n")
        mapped = Path(f"/proc/{server.process.pid}/maps").read_text()

    assert response["patchType"] == "JSONPatch"
    assert (explained["total"], explained["eligible"]["names"]) == (6, ["node-3"])
    assert 'kubevirt_webhook_requests_total{code="200",webhook="/mutate/scheduling/pods/enforce"} 1.0' in metrics
    assert 'kubevirt_webhook_scheduler_available{scheduler="batch"} 0.0' in metrics
    assert 'kubevirt_webhook_explain_requests_total{code="200"} 1.0' in metrics
    assert "# TYPE kubevirt_webhook_drift_objects gauge" in metrics
    assert "kubevirt_webhook_drift_objects{" not in metrics
    assert "kubevirt_webhook_layers_" not in metrics
    (line,) = server.audit  # type: ignore[attr-defined]
    assert (line["uid"], line["decision"]) == (response["uid"], "patched")
    assert line["reasons"][0]["code"] in decisions
    assert line["uid"] in decision
    assert all(".".join(change["path"]) in decision for change in line["changes"])
    assert re.findall(r"<bdi>(batch|kubevirt|serving)</bdi>", health) == ["kubevirt", "batch", "serving"]
    assert "node-3" in placement
    events = ["cluster objects read from files", "serving admins", "serving", "stopping"]
    assert [event["event"] for event in server.said] == events
    assert "google" not in mapped


def test_settings_are_followed(tmp_path: Path, pair: Pair) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("scheduling: {clusterWide: false}\n")
    other_namespace = example("09-not-opted-in.yaml")
    with serving(*FILES, "--config", str(config), *tls(tmp_path), pair=pair, end=signal.SIGINT) as server:
        before = server.post(other_namespace)
        config.write_text("scheduling: {clusterWid: true}\n")
        refused = server.until("invalid settings; keeping the previous settings")
        assert server.post(other_namespace) == before
        config.write_text("scheduling: {clusterWide: true}\nserver: {maxInFlight: 5}\n")
        server.until("settings reloaded")
        restart = server.until("changed settings take effect after a restart")
        after = server.post(other_namespace)
        metrics = server.get("/metrics")

    assert "did you mean scheduling.clusterWide?" in refused["mistakes"][0]
    assert before["auditAnnotations"] == {
        "uid": before["uid"],
        "mode": "off",
        "decision": "skipped",
        "reason": "out-of-scope",
    }
    assert after["auditAnnotations"] == {
        "uid": after["uid"],
        "mode": "enforce",
        "decision": "allowed",
        "reason": "vmi-not-found",
    }
    assert restart["keys"] == ["server.maxInFlight"]
    assert server.said[-1]["event"] == "stopping", "Ctrl-C ends it, too"
    assert 'kubevirt_webhook_settings_reloads_total{result="rejected"} 1.0' in metrics
    assert 'kubevirt_webhook_settings_reloads_total{result="accepted"} 1.0' in metrics


Rejection = Callable[..., str]


@pytest.fixture
def rejection(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rejection:
    """What `serve` says in this process, which needs no second to import all of it, nor one for each file."""

    def rejection_here(*arguments: str) -> str:
        handlers = logging.getLogger().handlers[:]
        with pytest.raises(SystemExit) as ended:
            main(["serve", *arguments])
        assert logging.getLogger().handlers == handlers, "nothing writes to a descriptor that is another file's soon"
        return sentence_of(ended.value.code, capfd.readouterr().err)

    return rejection_here


def sentence_of(status: object, said: str) -> str:
    assert status == 2, said
    sentences = [line for line in said.splitlines() if not line.startswith("{")]
    assert len(sentences) == 1, said
    return sentences[0]


def test_refusals_at_the_start(tmp_path: Path, pair: Pair, golden: Golden, rejection: Rejection) -> None:
    (tmp_path / "other").write_bytes(self_signed(["localhost"]).key)
    (tmp_path / "kubeconfig").write_text("nonsense: [")
    (tmp_path / "settings.yaml").write_text("schedulers: {kubevirt: {healthCheck: leese a/b}}")
    crt = str(tmp_path / "crt")

    def check(named: str, *options: str) -> None:
        sentence = rejection(*options)
        assert named in sentence
        golden(re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", sentence.replace(str(tmp_path), "DIR")))

    check("other", *FILES, "--tls-cert", crt, "--tls-key", str(tmp_path / "other"))
    check("none", *FILES, "--tls-cert", str(tmp_path / "none"), "--tls-key", str(tmp_path / "key"))
    for name in ("kubeconfig", "none"):
        check(name, "--kubeconfig", str(tmp_path / name))
    check("settings.yaml:1", *FILES, "--config", str(tmp_path / "settings.yaml"))
    (tmp_path / "settings.yaml").write_text(f"audit: {{output: {tmp_path}}}")
    check(str(tmp_path), *FILES, "--config", str(tmp_path / "settings.yaml"))
    check("none", "--cluster-from", str(tmp_path / "none"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        check(address, *FILES, "--listen", address, "--ops-listen", "127.0.0.1:0")
        check(address, *FILES, "--ops-listen", address)
        options = (*FILES, "--ops-listen", address)
        command = [sys.executable, "-m", "webhook", "serve", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert sentence_of(done.returncode, done.stderr) == rejection(*options)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (Options(cluster_from=Path("a"), kubeconfig=Kubeconfig("b")), "--cluster-from, --kubeconfig"),
        (Options(tls_cert=Path("a")), "--tls-cert, --tls-key"),
        (Options(tls_cert=Path("a"), tls_key=Path("b"), tls_mode="managed"), "--tls"),
        (Options(client_ca=Path("a")), "--client-ca, --client-name"),
        (Options(client_names=("a",)), "--client-ca, --client-name"),
        (Options(register=True), "--register"),
        (Options(register=True, url="https://localhost", cluster_from=Path("a")), "--register"),
        *((Options(register_as="A"), "--register-as"), (Options(url="http://localhost"), "--url")),
        *((Options(listen="nonsense"), "--listen"), (Options(ops_listen="localhost"), "--ops-listen")),
        *((Options(admin_listen="8091"), "--admin-listen"), (Options(tls_mode="mounted"), "--tls mounted")),
        # With no API server, which could check tokens, on loopback only.
        (Options(cluster_from=Path("a"), admin_listen="0.0.0.0:8091"), "--admin-listen"),
        (Options(tls_mode="managed", cluster_from=Path("a")), "--tls"),
        (Options(tls_mode="managed", register=True, url="https://localhost"), "--tls"),
        # So is the name of a client without a certificate.
        (Options(client_ca=Path("a"), client_names=("a", "")), "--client-name"),
    ],
)
def test_combinations_that_make_no_sense(options: Options, where: str, golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        options.check()
        options.apply_to(builders.settings())

    assert caught.value.where == where
    golden(str(caught.value))


def test_weak_pair_is_refused_in_one_sentence(tmp_path: Path, pair: Pair, golden: Golden, rejection: Rejection) -> None:
    (tmp_path / "crt").write_bytes(pair.certificate + b"-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n")
    sentence = rejection(*FILES, *tls(tmp_path))
    golden(re.sub(r" \([^()]*\)", " (REASON)", sentence))


def test_a_signal_ends_a_start_that_hangs(tmp_path: Path) -> None:
    """The kubeconfig's exec plugin never answers."""
    running = tmp_path / "pid"
    script = f"echo $$ > {running}.new; mv {running}.new {running}; exec sleep 60"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    config = FakeApiServer()
    config.url = "https://127.0.0.1:1"
    path = config.kubeconfig(tmp_path / "kubeconfig", exec=plugin | {"command": "sh", "args": ["-c", script]})
    command = [sys.executable, "-m", "webhook", "serve", "--kubeconfig", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # Until the plugin runs, a signal would meet Python's own handlers.
        while not running.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert err == b""
    # It may have ended with the server, whose loop takes its children along where it still can.
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(running.read_text()), signal.SIGKILL)


def test_without_options_the_kubeconfig_is_kubectls(
    tmp_path: Path, golden: Golden, rejection: Rejection, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text("nonsense: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    golden(rejection("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"))


_PROGRAM = """
import ssl
from webhook.cli.serve import without_system_authorities
with without_system_authorities():
    import webhook.server.runtime.serve
from aiohttp import connector
verified, unverified = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED
print([each.cert_store_stats()["x509"] for each in (verified, unverified)], verified.verify_mode == ssl.CERT_REQUIRED)
"""


def test_a_server_has_no_system_authorities_and_verifies_by_default() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 0] True\n"


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/own.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)

    with pytest.raises(RuntimeError), without_system_authorities():
        assert os.environ["SSL_CERT_FILE"] == os.devnull
        raise RuntimeError

    assert os.environ["SSL_CERT_FILE"] == "/own.pem"
    assert "SSL_CERT_DIR" not in os.environ


def test_the_option_of_before_names_the_one_of_now(golden: Golden, rejection: Rejection) -> None:
    told = rejection("--page-listen", "127.0.0.1:8091")
    assert "--admin-listen 127.0.0.1:8091" in told
    golden(told)
