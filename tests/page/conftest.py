"""A real `serve` over the example cluster, asked as an API server would, and Chromium to look at its page.

The tests are skipped, with the reason, where there is no Chromium. With ``PAGE_REQUIRED=1`` they fail instead: a run
that skipped them all must not look like a success.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Page, sync_playwright

from certs.source import self_signed
from hack.controlplane.build import cache_root
from tests.cli.runner import EXAMPLES
from tests.cli.test_serve import FILES, Serving, serving, tls
from webhook.cli import data
from webhook.k8s.yaml_documents import read_documents
from webhook.policies.registry import ENDPOINTS

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = "4.14.1"
# As the package registry states it; what is fetched is held to it.
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
_SCRIPT = "package/axe.min.js"
# Of rules whose violations keep people out.
SERIOUS = ("serious", "critical")


def lack(reason: str) -> NoReturn:
    """Skips what cannot run on this machine, or fails it."""
    if os.environ.get("PAGE_REQUIRED"):
        pytest.fail(reason)
    pytest.skip(reason)


def browser_path() -> str:
    found = os.environ.get("CHROMIUM") or next((path for name in PROGRAMS if (path := shutil.which(name))), "")
    return found or lack("Chromium is missing; on Debian install chromium, or set CHROMIUM=PATH")


def axe_source() -> str:
    """The source of axe-core, from the cache or the package registry."""
    folder = cache_root(os.environ) / "axe-core"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"axe-{AXE}.min.js"
    with FileLock(folder / ".lock"):
        if not script.exists():
            script.write_text(_fetch())
    return script.read_text()


def _fetch() -> str:
    npm = shutil.which("npm") or lack("npm is missing, which fetches axe-core")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{AXE}", "--pack-destination", folder], capture_output=True, text=True
        )
        archives = [*Path(folder).glob("*.tgz")]
        if done.returncode or not archives:
            lack(f"axe-core cannot be fetched: {done.stderr.strip()[-300:]}")
        packed = archives[0].read_bytes()
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != AXE_SHA512:
        raise AssertionError("the archive of axe-core is not the one that is expected")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile(_SCRIPT)
        assert member
        return member.read().decode()


def violations(page: Any, source: str, *rules: str) -> list[str]:
    """What axe-core finds on a page, by all rules or by some of them: rule, and where."""
    page.evaluate(source)
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{each['id']} ({each['impact']}): {', '.join(node['html'][:120] for node in each['nodes'][:3])}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


_WIDTH, _HEIGHT = 1280, 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.page)


@dataclass
class Site:
    """The page of a running server.

    Attributes:
        requests: the URLs of all that was loaded.
        problems: what the browser complained of.
        windows: those that are open, by their options.
    """

    url: str
    server: Serving
    browser: Browser
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    windows: dict[str, Page] = field(default_factory=dict)

    def open(self, path: str = "", *, color_scheme: Any = "light", **options: Any) -> Page:
        """The window with such options, whose requests and complaints are kept: to open one takes more than a test."""
        options = {"viewport": {"width": _WIDTH, "height": _HEIGHT}, **options}
        page = self.windows.get(repr(options))
        if page is None:
            page = self.windows[repr(options)] = self.browser.new_context(**options).new_page()
            page.on("request", lambda request: self.requests.append(request.url))
            page.on("console", lambda message: self.problems.append(message.text))
            page.on("pageerror", lambda error: self.problems.append(str(error)))
            page.on("dialog", lambda dialog: self.problems.append(f"a dialog: {dialog.message}"))
        page.emulate_media(color_scheme=color_scheme)
        page.goto(self.url + path)
        return page

    def review(self, value: Any) -> None:
        request = value["request"]
        for endpoint in ENDPOINTS:
            if (
                endpoint.stage == "enforce"
                and endpoint.resource == request["resource"]["resource"]
                and endpoint.sub_resource == (request.get("subResource") or "")
                and request["operation"] in endpoint.operations
            ):
                self.server.post(msgspec.json.encode(value), endpoint.path)


def examples() -> Iterator[Any]:
    for file in sorted((data.directory("examples") / "reviews").glob("*.yaml")):
        (document,) = read_documents(file)
        yield document.value


# While Playwright runs, its thread has a running event loop, which no other test of the same process could have then.
@pytest.fixture(scope="package")
def window() -> Iterator[Browser]:
    """Chromium, one for all files here: it ends before a test elsewhere begins."""
    path = browser_path()
    with sync_playwright() as playwright:
        # Text without the colors of one screen: pictures are smaller, and the same everywhere.
        # With a limit, none is kept in reserve.
        options = ["--disable-lcd-text", "--renderer-process-limit=1"]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> Callable[..., list[str]]:
    """Finds what keeps people out of a page."""
    source = axe_source()
    return lambda page, *rules: violations(page, source, *rules)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, window: Browser) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("serve")
    pair = self_signed(["localhost", "127.0.0.1"])
    (folder / "crt").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    more = ["--config", str(EXAMPLES / "settings.yaml"), *tls(folder), "--admin-listen", "127.0.0.1:0"]
    with serving(*FILES, *more, pair=pair) as server:
        (url,) = (f"{event['address']}/page" for event in server.said if event["event"] == "serving admins")
        site = Site(url, server, window)
        for value in examples():
            site.review(value)
        yield site
        for page in site.windows.values():
            page.context.close()


@pytest.fixture
def site(served: Site) -> Iterator[Site]:
    """The server; afterwards nothing may have been loaded from elsewhere, and nothing complained of."""
    served.requests.clear()
    served.problems.clear()
    yield served
    origin = served.url.removesuffix("/page")
    assert [url for url in served.requests if not url.startswith(origin)] == []
    assert served.problems == []
