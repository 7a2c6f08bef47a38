"""The settings of all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hack import debian
from tests import golden_files, measuring

# A slow machine is not a bug: no test asserts how long something takes.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

_ROOT = Path(__file__).resolve().parents[1]
# Packages and their programs by the fixtures that take them.
_DEBIAN = {
    "prometheus": ("prometheus", "prometheus", "promtool"),
    "registry_binary": ("docker-registry", "docker-registry"),
}


@pytest.fixture(scope="session", autouse=True)
def _without_system_authorities() -> Iterator[None]:
    """They vouch for no server of a test, and to read them takes most of what a client of an API server costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> golden_files.Golden:
    """Holds the texts that a test makes to its sections of the golden file of its module."""
    return golden_files.hold(request)


def _of_debian(fixture: str) -> Path:
    """The directory of the programs of a fixture; where there is none, and none to be had, its tests are skipped."""
    package, *programs = _DEBIAN[fixture]
    try:
        return debian.ensure(package, programs, os.environ)
    except debian.MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The directory with prometheus and promtool."""
    return _of_debian("prometheus")


@pytest.fixture(scope="session")
def registry_binary() -> Path:
    """The program of Debian's docker-registry."""
    return _of_debian("registry_binary") / "docker-registry"


@pytest.fixture
def golden_catalogue() -> Callable[[str, str], None]:
    """Holds a text to the entries of a golden file, by the file's name."""
    return golden_files.check_entry


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(golden_files.GoldenPlugin())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if golden_files.is_golden(item):
            item.add_marker("golden")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    gc.disable()  # of what comes to be meanwhile, next to nothing goes
    try:
        with measuring.unmeasured() if _only_distributes(session.config) else measuring.collecting():
            return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Ten thousand tests stay until the end, so no search for garbage, which some tests often ask for, visits them."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Unpacks programs of Debian first: downloads do not count as a test's time. Workers alone measure."""
    names = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for fixture, (package, *programs) in _DEBIAN.items():
        if fixture in names and not session.config.option.collectonly:
            with contextlib.suppress(debian.MissingError):  # which the fixture reports
                debian.ensure(package, programs, os.environ)
    with measuring.unmeasured() if _only_distributes(session.config) else contextlib.nullcontext():
        return (yield)


def _only_distributes(config: pytest.Config) -> bool:
    """Whether this process runs no test: it gives them to xdist's workers."""
    return config.pluginmanager.has_plugin("dsession")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with measuring.measuring(item):
        return (yield)
