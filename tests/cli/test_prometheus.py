"""The answers are those of Prometheus 3.5 to both queries."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from certs.source import self_signed
from webhook.cli.prometheus import QUERIES, pod_metrics
from webhook.errors import InputError
from webhook.forecast.usage import RESOURCES

WEB, DB = ({"namespace": "shop", "pod": f"virt-launcher-{name}-x7k2p"} for name in ("web", "db"))


def answer(*series: tuple[Mapping[str, str], str]) -> bytes:
    result = [{"metric": metric, "value": [1_795_968_007.113, value]} for metric, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


BOTH = {
    QUERIES["cpu"]: answer((WEB, "0.4218937"), (DB, "3.7e-05")),
    QUERIES["memory"]: answer((WEB, "1610612736"), (DB, "NaN")),
}


@contextmanager
def prometheus(
    answers: Mapping[str, bytes],
    status: int = 200,
    login: str = "",
    pause: float = 0,
    context: ssl.SSLContext | None = None,
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.headers.get("Authorization", "") == login
            asked = urlsplit(self.path)
            assert asked.path == "/api/v1/query"
            body = answers.get(parse_qs(asked.query)["query"][0], b"")
            self.send_response(status)
            self.end_headers()
            with suppress(OSError):
                for piece in (bytes([each]) for each in body) if pause else (body,):
                    self.wfile.write(piece)
                    time.sleep(pause)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_what_pods_used() -> None:
    assert tuple(QUERIES) == RESOURCES
    with prometheus(BOTH) as url:
        found = {each.meta.name: each.amounts for each in pod_metrics(f"{url}/")}
    # Of a pod without a number for both, nothing is known.
    assert found == {WEB["pod"]: (422, 1610612736), DB["pod"]: None}


def test_a_login_in_the_url_is_sent_and_not_shown() -> None:
    login = f"Basic {b64encode(b'admin:hunter2canary').decode()}"
    with prometheus(BOTH, login=login) as url:
        assert pod_metrics(url.replace("//", "//admin:hunter2canary@"))
    with prometheus({}, 401, login) as url, pytest.raises(InputError, match="401") as refused:
        pod_metrics(url.replace("//", "//admin:hunter2canary@"))
    assert "hunter2canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"<html>", 200),
        (b'{"status": "error", "errorType": "bad_data"}', 400),
        (b'{"status": "error"}', 200),
        (b"\xff", 200),
        (b'{"status": "success", "x": ' + b"[" * 100_000, 200),
        (answer((WEB, "many")), 200),
    ],
)
def test_what_is_no_answer_is_said(body: bytes, status: int) -> None:
    with prometheus(dict.fromkeys(BOTH, body), status) as url, pytest.raises(InputError, match="Prometheus"):
        pod_metrics(url)


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.cli.prometheus._MOST_BYTES", 100)
    with prometheus(BOTH) as url, pytest.raises(InputError, match="the answer has more than"):
        pod_metrics(url)


def test_an_answer_in_drops_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drop arrives in time; it is all of them that do not."""
    monkeypatch.setattr("webhook.cli.prometheus._SECONDS", 0.3)
    with (
        prometheus(dict.fromkeys(BOTH, b" " * 1000), pause=0.02) as url,
        pytest.raises(InputError, match=r"does not answer within 0\.3s"),
    ):
        pod_metrics(url)


def test_a_certificate_that_nobody_trusts(tmp_path: Path) -> None:
    pair, pem = self_signed(["127.0.0.1"]), tmp_path / "pair.pem"
    pem.write_bytes(pair.key + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with (
        prometheus(BOTH, context=context) as url,
        pytest.raises(InputError, match=r"cannot be verified \(self.signed certificate\).*SSL_CERT_FILE"),
    ):
        pod_metrics(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "file:///etc/passwd",
        "localhost:9090",
        "",
        "http://",
        "http://[::1",
        "http://a b/",
        "http://127.0.0.1:port",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:1/?query=up",
        "http://\N{SNOWMAN}" + "a" * 100,
    ],
)
def test_what_is_no_prometheus(url: str) -> None:
    with pytest.raises(InputError) as refused:
        pod_metrics(url)
    assert "\n" not in str(refused.value)
