"""A real `serve` over the example cluster, asked as an API server would, and Chromium to look at its page.

The tests are skipped, with the reason, where there is no Chromium. With ``PAGE_REQUIRED=1`` they fail instead: a run
that skipped them all must not look like a success.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from certs.source import self_signed
from tests.cli.runner import EXAMPLES
from tests.cli.test_serve import FILES, Serving, serving, tls
from tests.page import chromium
from webhook.cli import data
from webhook.k8s.yaml_documents import read_documents
from webhook.review.endpoints import ENDPOINTS

_REQUIRED = "PAGE_REQUIRED"
_WIDTH, _HEIGHT = 1280, 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.page)


@dataclass
class Site:
    """The page of a running server.

    Attributes:
        requests: the URLs of all that was loaded.
        problems: what the browser complained of.
    """

    url: str
    server: Serving
    browser: Browser
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "", **options: Any) -> Page:
        """A new window, whose requests and complaints are kept."""
        size = {"viewport": {"width": _WIDTH, "height": _HEIGHT}}
        page: Page = self.browser.new_context(**size | options).new_page()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(f"a dialog: {dialog.message}"))
        page.goto(self.url + path)
        return page

    def review(self, value: Any) -> None:
        """Send a review to every endpoint that would get it."""
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
    try:
        path = chromium.browser()
    except chromium.BrowserMissingError as error:
        if os.environ.get(_REQUIRED):
            raise
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        # Text without the colors of one screen: pictures are smaller, and the same everywhere.
        browser = playwright.chromium.launch(executable_path=path, args=["--disable-lcd-text"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> Callable[[Page], list[str]]:
    """Finds what keeps people out of a page."""
    try:
        source = chromium.axe()
    except chromium.BrowserMissingError as error:
        if os.environ.get(_REQUIRED):
            raise
        pytest.skip(str(error))
    return lambda page: chromium.violations(page, source)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, window: Browser) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("serve")
    pair = self_signed(["localhost", "127.0.0.1"])
    (folder / "crt").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    more = ["--config", str(EXAMPLES / "settings.yaml"), *tls(folder), "--page-listen", "127.0.0.1:0"]
    with serving(*FILES, *more, pair=pair) as server:
        (url,) = (event["address"] for event in server.said if event["event"] == "serving the page")
        site = Site(url, server, window)
        for value in examples():
            site.review(value)
        yield site


@pytest.fixture
def site(served: Site) -> Iterator[Site]:
    """The server; afterwards nothing may have been loaded from elsewhere, and nothing complained of."""
    served.requests.clear()
    served.problems.clear()
    yield served
    origin = served.url.removesuffix("/page")
    assert [url for url in served.requests if not url.startswith(origin)] == []
    assert served.problems == []
    for context in served.browser.contexts:
        context.close()
