"""Fixtures of the end-to-end tests: a control plane for all of them, or one of a test's own to break.

The tests are skipped, with the reason, where neither a control plane nor Go to build one is at hand. With
``E2E_REQUIRED=1``, as in CI, they fail instead: a run that skipped them all must not look like a success.

``KUBERNETES=1.34`` runs them on an older control plane. What a test needs that an older one lacks stands beside it, in
``@pytest.mark.kubernetes``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from hack.controlplane.build import location
from hack.controlplane.bundles import HELM, Bundle

from .support import order, shared, sizes, versions
from .support.access import Access
from .support.kube import Kube, KubeError
from .support.lent import LentPlane
from .support.objects import kubevirt_crds
from .support.processes import StartError
from .support.tenant import Tenant
from .support.webhook_server import INSTANCETYPES, MIGRATION, SCHEDULING, WebhookServer, install
from .support.workloads import MIGRATIONS, PODS, VMIS, VMS

BUILD = (sys.executable, "-m", "hack.controlplane.build")
EX_UNAVAILABLE = 69
REQUIRED = os.environ.get("E2E_REQUIRED") == "1"
# The schedulers of the server that most tests share: the plane's own, one that is unavailable, and one without a health
# check.
SCHEDULERS = {
    "kubevirt": {"healthCheck": "lease kubevirt-scheduler/kubevirt-scheduler"},
    "dead": {"healthCheck": "lease kubevirt-scheduler/nobody"},
    "unchecked": {"healthCheck": "off"},
}


@dataclass(frozen=True)
class Missing:
    """Why there are no binaries, and whether that is a reason to fail."""

    reason: str
    fail: bool


BINARIES = pytest.StashKey[Path | Missing]()
# Why bundles beside it could not be built, by their names.
UNBUILT = pytest.StashKey[dict[str, str]]()
# The plane of this worker that no test uses now, if there is one, and the files of the tests that use some.
SPARE = pytest.StashKey[list[LentPlane]]()
BORROWERS = pytest.StashKey[frozenset[Path]]()


@dataclass(frozen=True)
class OwnPlane:
    """Gives a control plane that is the test's, or its module's, alone: to stop, restart and reconfigure, or to leave
    as it was found. The options are ControlPlane's.

    Without options, or with the controller manager's alone, it may have been another's, and was brought back.
    """

    directory: Path
    binaries: Path
    spare: list[LentPlane]
    ends: contextlib.ExitStack

    def __call__(self, *, controller_manager: bool = False, **options: Any) -> LentPlane:
        if "definitions" in options and options["definitions"] == kubevirt_crds():
            del options["definitions"]  # those that every plane has
        if options or not self.spare:
            plane = LentPlane(self.directory / f"plane-{next(_NUMBERS)}", self.binaries, **options)
            plane.start()
            if not options:
                plane.remember()
        else:
            plane = self.spare.pop()
        self.ends.callback(self._take_back if not options else LentPlane.stop, plane)
        if controller_manager:
            plane.start_controller_manager()
        return plane

    def _take_back(self, plane: LentPlane) -> None:
        if not self.spare and plane.reset():
            self.spare.append(plane)
        else:
            plane.stop()


@dataclass(frozen=True)
class NewNamespace:
    """Makes a namespace in the shared plane that is emptied after the test, and returns its name."""

    admin: Kube
    made: list[str]

    def __call__(self, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None) -> str:
        self.made.append(self.admin.make_namespace("e2e-", labels, annotations))
        return self.made[-1]


@dataclass(frozen=True)
class NewWebhook:
    """Starts a webhook server that ends with the test, on the shared plane or on one of the test's own."""

    plane: Access
    directory: Path
    servers: contextlib.ExitStack

    def __call__(self, settings: Mapping[str, Any] | None = None, *, access: Access | None = None) -> WebhookServer:
        access, name = access or self.plane, f"test-{secrets.token_hex(4)}"
        install(access.admin)
        server = WebhookServer(access, self.directory, name, settings or {"schedulers": SCHEDULERS})
        return self.servers.enter_context(server)


# The server with such settings, which a module's tests share; each has namespaces, and decisions, of its own.
ModuleWebhook: TypeAlias = Callable[[Mapping[str, Any]], WebhookServer]


@dataclass(frozen=True)
class NewTenant:
    """Makes a namespace in the shared plane that a server, the shared one or the test's own, evaluates."""

    request: pytest.FixtureRequest
    new_namespace: NewNamespace

    def __call__(
        self,
        mode: str | None = "enforce",
        *,
        annotations: Mapping[str, str] | None = None,
        server: WebhookServer | None = None,
        policies: Sequence[str] = (SCHEDULING,),
    ) -> Tenant:
        """Mode None: the namespace has no label."""
        server = server or self.request.getfixturevalue("webhook")
        assert not {INSTANCETYPES, MIGRATION}.intersection(policies) or server.validates
        return Tenant(server, self.new_namespace(server.labels(mode, policies), annotations))


@dataclass(frozen=True)
class NewSized:
    """Makes a namespace under the instancetypes policy, with instancetypes, preferences and, by default, defaults."""

    new_tenant: NewTenant

    def __call__(self, annotations: Mapping[str, str] = sizes.DEFAULTS, server: WebhookServer | None = None) -> Tenant:
        made = self.new_tenant(annotations=annotations, server=server, policies=[INSTANCETYPES])
        return sizes.offer(made, "small", "large", "linux")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "e2e: needs a real Kubernetes control plane (make binaries)")
    config.addinivalue_line("markers", "builds(bundle, ...): what of hack/controlplane/bundles.py it runs besides")
    config.addinivalue_line("markers", "kubernetes(feature, ...): needs these of tests/e2e/support/versions.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    ours = frozenset(item for item in items if Path(__file__).parent in item.path.parents)
    for item in ours:
        item.add_marker(pytest.mark.e2e)
        if "helm_program" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.builds(HELM.name))
        if why := versions.lack(item):
            item.add_marker(pytest.mark.skip(reason=why))
    yield  # to those that deselect
    if ours:
        config = next(iter(ours)).config
        config.stash[BORROWERS] = frozenset(item.path for item in ours if order.uses_planes(item))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = order.dealt(items, ours, workers)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Builds the binaries before the first test, for a test's timeout has no room for the minutes that it may take."""
    config = session.config
    wanted = any(item.get_closest_marker("e2e") for item in session.items)
    if wanted and not config.option.collectonly:
        config.stash[BINARIES] = _build(config)
        names = {name for item in session.items for mark in item.iter_markers("builds") for name in mark.args}
        unbuilt = config.stash[UNBUILT] = {}
        for name in sorted(names):
            command = [*BUILD, f"--{name}"]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode:
                unbuilt[name] = done.stderr.strip()


def _build(config: pytest.Config) -> Path | Missing:
    """Runs the build, its progress going to the terminal as it comes."""
    said = ""
    command = [*BUILD, *(["--kubernetes", versions.OLDER] if versions.OLDER else [])]
    capture = config.pluginmanager.getplugin("capturemanager")
    with (
        capture.global_and_fixture_disabled() if capture else contextlib.nullcontext(),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as build,
    ):
        assert build.stderr is not None
        assert build.stdout is not None
        for line in build.stderr:
            said += line
            print(line, end="", file=sys.stderr, flush=True)
        directory = build.stdout.read().strip()
    if build.returncode == 0:
        return Path(directory.splitlines()[-1])
    return Missing(said.strip(), fail=build.returncode != EX_UNAVAILABLE or REQUIRED)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Path:
    found = pytestconfig.stash[BINARIES]
    if isinstance(found, Path):
        return found
    if found.fail:
        pytest.fail(found.reason, pytrace=False)
    pytest.skip(found.reason)


@pytest.fixture(scope="session")
def kube_scheduler(binaries: Path) -> Path:
    """The scheduler's binary, for tests that start one: directories made for KUBEBUILDER_ASSETS usually have none."""
    binary = binaries / "kube-scheduler"
    if binary.exists():
        return binary
    reason = f"no kube-scheduler in {binaries}; unset KUBEBUILDER_ASSETS to have one built"
    if REQUIRED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def plane(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    """The control plane that all tests of all workers share: four nodes, schedulers ``default-scheduler`` and
    ``kubevirt``, a controller manager. Keep to a namespace of your own in it, and to labels of your own on nodes."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    try:
        membership, why = shared.join(run / "control-plane", binaries), ""
    except StartError as error:
        membership, why = None, str(error)
    if membership is None:
        pytest.fail(why, pytrace=False)  # raised from within the handler, the failure would show both
    yield membership.access
    membership.leave()


@pytest.fixture(scope="session")
def lent(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the planes that this worker starts."""
    pytestconfig.stash[SPARE] = []
    return tmp_path_factory.mktemp("planes")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the plane that is left over when other tests follow: unused, it would still slow them."""
    spare = item.config.stash.get(SPARE, [])
    if spare and (nextitem is None or nextitem.path not in item.config.stash[BORROWERS]):
        spare.pop().stop()


_NUMBERS = itertools.count(1)


def _planes(request: pytest.FixtureRequest, binaries: Path, lent: Path) -> Iterator[OwnPlane]:
    with contextlib.ExitStack() as ends:
        yield OwnPlane(lent, binaries, request.config.stash[SPARE], ends)


# For a test, and for a module's tests, which use planes one after the other.
own_plane, module_plane = pytest.fixture(_planes), pytest.fixture(_planes, scope="module")


@pytest.fixture
def new_namespace(plane: Access) -> Iterator[NewNamespace]:
    """What others could meet in them is deleted, without waiting; pods at once, since no kubelet is there
    to end them gracefully.

    The namespace itself stays: to delete one costs the API server and its controllers as much as a dozen tests do, for
    they look for objects of each kind that there is.
    """
    made: list[str] = []
    yield NewNamespace(plane.admin, made)
    # Owners first, or their controllers could make more.
    for name, resource in itertools.product(made, (MIGRATIONS, VMS, VMIS, PODS)):
        with contextlib.suppress(KubeError):  # the test may have deleted it itself
            plane.admin.delete_all(resource, name, gracePeriodSeconds="0")


@pytest.fixture
def namespace(new_namespace: NewNamespace) -> str:
    return new_namespace()


@pytest.fixture
def schedulers(plane: Access, kube_scheduler: Path) -> Access:
    """The shared plane, for tests that need its schedulers or its controller manager."""
    assert plane.has(kube_scheduler.name)
    return plane


@pytest.fixture(scope="session")
def webhook(plane: Access, kube_scheduler: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """The webhook server that the tests of one worker share; each has namespaces, and so decisions, of its own.

    Choosing nodes takes the right to it, which the admins who own the namespaces have.
    """
    settings = {"schedulers": SCHEDULERS, "migration": {"requireRight": True}}
    with contextlib.ExitStack() as servers:
        yield NewWebhook(plane, tmp_path_factory.mktemp("webhook"), servers)(settings)


@pytest.fixture
def new_webhook(plane: Access, kube_scheduler: Path, tmp_path: Path) -> Iterator[NewWebhook]:
    with contextlib.ExitStack() as servers:
        yield NewWebhook(plane, tmp_path, servers)


@pytest.fixture(scope="module")
def module_webhook(
    plane: Access, kube_scheduler: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleWebhook]:
    started: dict[str, WebhookServer] = {}
    with contextlib.ExitStack() as servers:
        start = NewWebhook(plane, tmp_path_factory.mktemp("module-webhook"), servers)

        def get(settings: Mapping[str, Any]) -> WebhookServer:
            key = json.dumps(settings, sort_keys=True)
            if key not in started:
                started[key] = start(settings)
            return started[key]

        yield get


@pytest.fixture
def new_tenant(request: pytest.FixtureRequest, new_namespace: NewNamespace) -> NewTenant:
    return NewTenant(request, new_namespace)


@pytest.fixture
def tenant(new_tenant: NewTenant) -> Tenant:
    return new_tenant()


@pytest.fixture
def new_sized(new_tenant: NewTenant) -> NewSized:
    return NewSized(new_tenant)


@pytest.fixture
def sized(new_sized: NewSized) -> Tenant:
    """A namespace with a default instancetype and a default preference."""
    return new_sized()


@pytest.fixture
def moving(new_tenant: NewTenant) -> Tenant:
    """A namespace where the shared webhook server enforces the selectors of migrations."""
    return new_tenant(policies=[MIGRATION])


@pytest.fixture(scope="session")
def built(pytestconfig: pytest.Config) -> Callable[[Bundle], Path]:
    """The directory of a bundle that a test's mark ``builds`` names: none is built within the time of a test.

    Without Go the test is skipped.
    """

    def get(bundle: Bundle) -> Path:
        directory = location(os.environ, bundle=bundle)
        if directory.is_dir():
            return directory
        reason = pytestconfig.stash[UNBUILT].get(bundle.name, f"{bundle.title} was not built before the first test")
        if shutil.which("go"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return get


@pytest.fixture(scope="session")
def helm_program(built: Callable[[Bundle], Path]) -> Path:
    return built(HELM) / "helm"
