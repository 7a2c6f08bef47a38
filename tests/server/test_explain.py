"""Explanations over HTTP: requests, permissions, limits, and the facts that are never disclosed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.cli.clusters import put
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.golden_files import Golden
from tests.policies.migration.world import facts
from tests.review.memory import MemoryCluster
from tests.server.listening import Crashes, Visitor, visited
from tests.waiting import break_off, until
from webhook.cluster.live import LiveCluster
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import AccessKey, Key, NodesKey, TokenKey
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.selectors import find_malformed, is_name
from webhook.policies.migration.explanation import SCHEMA
from webhook.server import explain
from webhook.server.explain import MAX_QUERY, PATH, Explainer, question
from webhook.settings.model import is_loopback

ASKED = f"{PATH}?namespace=demo&name=web01&to=zone=a"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKEN = "SECRET-TOKEN"
DEMO = {"namespace": "demo"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
IDENTITY = {"uid": "7", "groups": ["devs", "ops"], "extra": {"scopes": ["x"]}}


class CountedExplanations(Crashes):
    """What the listener reported."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[int] = []

    def on_explained(self, status: int) -> None:
        self.statuses.append(status)


class FacedExplain:
    """A listener, and a client of it."""

    def __init__(self, visitor: Visitor, counted: CountedExplanations) -> None:
        self.visitor = visitor
        self.counted = counted

    async def get(self, path: str = ASKED, method: str = "GET", **headers: str) -> tuple[int, Any]:
        status, text = await self.visitor.get(path, method, **headers)
        self.headers = self.visitor.headers
        assert (self.headers["Content-Type"], self.headers["Cache-Control"]) == ("application/json", "no-store")
        return status, json.loads(text) if text else None


Open = Callable[..., Awaitable[FacedExplain]]


@pytest.fixture
async def listening() -> AsyncIterator[Open]:
    async with AsyncExitStack() as ends:

        async def start(cluster: Cluster, address: str = "127.0.0.1:0") -> FacedExplain:
            counted = CountedExplanations()
            explainer = Explainer(cluster, counted, guarded=not is_loopback(address))
            return FacedExplain(await ends.enter_async_context(visited(explainer, address)), counted)

        yield start
    await break_off()


def memory(more: dict[Key[Any], object] | None = None) -> MemoryCluster:
    return MemoryCluster(facts() | (more or {}), peeked=set())


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered(listening: Open) -> None:
    cluster = memory()
    asking = await listening(cluster)
    status, answer = await asking.get()
    assert not any(isinstance(key, TokenKey | AccessKey) for key in cluster.reads), "nobody is asked who it is"
    assert asking.visitor.url.startswith("http://127.0.0.1:")
    assert (status, answer["schema"], answer["summary"]) == (200, SCHEMA, "1 of 4 nodes is eligible: node-a2")
    assert answer["node"] is None
    _, answer = await asking.get(f"{ASKED}&node=node-b1")
    assert answer["node"]["eligible"] is False
    assert asking.counted.statuses == [200, 200]


def test_what_a_question_holds() -> None:
    asked = question("namespace=demo&name=web01&to=zone=b&to=a.b%2Fdisk=&node=n1&name=web01")
    assert asked == ("demo", "web01", {"zone": "b", "a.b/disk": ""}, "n1")


@pytest.mark.parametrize(
    "query",
    [
        *("", "namespace=demo", "namespace=demo&name=", "namespace=demo&name=web01&too=zone=b"),
        *("namespace=demo&name=a&name=b", "namespace=../x&name=a", "namespace=demo&name=web01&node=N"),
        *("namespace=demo&name=web01&to=zone", "namespace=demo&name=web01&to=zone=%ff", "x" * (MAX_QUERY + 1)),
        "&".join(f"to=a{number}=b" for number in range(40)),
    ],
    ids=range(11),
)
async def test_what_is_no_question_gets_a_sentence(listening: Open, query: str, golden: Golden) -> None:
    with pytest.raises(InputError) as refused:
        question(query)
    golden(str(refused.value))
    asking = await listening(memory())
    status, answer = await asking.get(f"{PATH}?{quote(query, safe='&=%/.')}")
    assert (status, list(answer), asking.counted.errors) == (400, ["error"], [])


@given(
    st.text(max_size=60)
    | st.lists(st.tuples(st.sampled_from(["namespace", "name", "node", "to"]), st.text(max_size=9)), max_size=6).map(
        urlencode
    )
)
def test_whatever_is_asked_is_a_question_or_a_sentence(query: str) -> None:
    try:
        asked = question(query)
    except InputError as error:
        json.dumps(str(error)).encode()
        assert "\n" not in str(error)
    else:
        assert is_name(asked.namespace)
        assert is_name(asked.name)
        assert find_malformed(asked.added, "") == ()


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        (f"{PATH}/x", "GET", 404),
        (ASKED, "POST", 405),
        (f"{PATH}?namespace=demo&name=web01&node=n9", "GET", 404),
    ],
    ids=["root", "below", "POST", "node"],
)
async def test_other_requests(listening: Open, path: str, method: str, status: int, golden: Golden) -> None:
    asking = await listening(memory())
    answered, answer = await asking.get(path, method)
    assert answered == status
    golden(answer["error"])
    assert asking.counted.statuses == [status]


@pytest.mark.parametrize(
    ("nodes", "status", "said"),
    [(Unavailable("not listed yet"), 503, "not listed yet"), ("not nodes", 500, "internal")],
)
async def test_not_knowing_is_503_and_a_bug_500(listening: Open, nodes: Any, status: int, said: str) -> None:
    asking = await listening(memory({NodesKey(): nodes}))
    answered, answer = await asking.get()
    assert (answered, asking.headers.get("Retry-After")) == (status, "5" if status == 503 else None)
    assert said in answer["error"]
    assert len(asking.counted.errors) == (status == 500)


# -- permissions of users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]", "[::1]:80"])
async def test_names_of_this_host(listening: Open, host: str) -> None:
    assert (await (await listening(memory())).get(Host=host))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "localhost.evil.example", "[::2]:80", ""])
async def test_a_page_that_lets_its_own_name_point_here(listening: Open, host: str, golden: Golden) -> None:
    asking = await listening(memory())
    status, answer = await asking.get(Host=host)
    assert (status, list(answer)) == (403, ["error"])
    golden(answer["error"])


class Behind:
    """A guarded listener in front of a real look-up at a fake API server."""

    def __init__(self, server: FakeApiServer, asking: FacedExplain) -> None:
        self.server = server
        self.asking = asking

    def knows(self, user: str | None, *, may: tuple[str, ...] = ("nodes", "virtualmachineinstances")) -> None:
        """Sets the user of the token; None: the token is not valid."""
        status = {"authenticated": user is not None, "user": {"username": user or ""} | IDENTITY}
        self.server.answer(TOKENS, lambda _: web.json_response({"status": status}, status=201), times=99)

        async def allowed(request: web.Request) -> web.Response:
            asked = (await request.json())["spec"]["resourceAttributes"]["resource"]
            return web.json_response({"status": {"allowed": asked in may}}, status=201)

        self.server.answer(RIGHTS, allowed, times=99)


@pytest.fixture
async def behind(listening: Open, tmp_path: Path) -> AsyncIterator[Behind]:
    server = FakeApiServer()
    server.serve(NAMESPACES)
    put(server)
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        cluster = LiveCluster(transport, builders.settings(schedulers={}))
        cluster.start()
        try:
            await until(lambda: not cluster.waiting_for())
            yield Behind(server, await listening(cluster, "0.0.0.0:0"))
        finally:
            await cluster.close()


async def test_who_may_see_it_gets_it(behind: Behind, golden: Golden) -> None:
    behind.knows("alice")
    status, answer = await behind.asking.get(**BEARER)

    assert behind.asking.visitor.url.startswith("https://")
    assert (status, answer["total"], answer["eligible"]["names"]) == (200, 3, ["node-a2"])
    golden("\n".join(answer["gaps"]))
    assert json.loads(behind.server.requests(TOKENS)[0].body)["spec"] == {"token": TOKEN}
    specs = [json.loads(asked.body)["spec"] for asked in behind.server.requests(RIGHTS)]
    # What RBAC of impersonated users depends on goes along.
    assert all({key: spec[key] for key in ("user", *IDENTITY)} == {"user": "alice"} | IDENTITY for spec in specs)
    assert sorted((spec["resourceAttributes"] for spec in specs), key=str) == [
        {"verb": "get", "group": "", "resource": "persistentvolumeclaims"} | DEMO,
        {"verb": "get", "group": "", "resource": "persistentvolumes"},
        {"verb": "get", "group": "kubevirt.io", "resource": "virtualmachineinstances"} | DEMO | {"name": "web01"},
        {"verb": "list", "group": "", "resource": "nodes"},
    ]
    assert behind.server.requests("/api/v1/namespaces/demo/persistentvolumeclaims/data") == []


async def test_who_may_see_volumes_is_sent_only_where_they_are_reached(behind: Behind) -> None:
    behind.knows("alice", may=("nodes", "virtualmachineinstances", "persistentvolumeclaims", "persistentvolumes"))
    _, answer = await behind.asking.get(**BEARER)
    assert ["node-b1"] in [each["nodes"]["names"] for each in answer["reasons"] if each["origin"] == "volumes"]


async def test_a_token_is_asked_about_every_time(behind: Behind) -> None:
    behind.knows("alice")
    assert (await behind.asking.get(**BEARER))[0] == 200
    behind.server.heal()
    behind.knows(None)
    assert (await behind.asking.get(**BEARER))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Basic eDp5"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer é"},
    ],
)
async def test_no_token(behind: Behind, headers: dict[str, str], golden: Golden) -> None:
    behind.knows("alice")
    status, answer = await behind.asking.get(**headers)
    assert (status, list(answer)) == (401, ["error"])
    golden(answer["error"])
    assert (behind.asking.headers["WWW-Authenticate"], behind.server.requests(TOKENS)) == ("Bearer", [])


async def test_a_token_of_nobody(behind: Behind, golden: Golden) -> None:
    behind.knows(None)
    status, answer = await behind.asking.get(f"{PATH}?nonsense", **BEARER)
    assert status == 401
    golden(answer["error"])
    assert behind.server.requests(RIGHTS) == []


@pytest.mark.parametrize("may", [("nodes",), ("virtualmachineinstances",), ()], ids=["nodes", "VMIs", "nothing"])
async def test_who_may_not_see_it_learns_nothing(behind: Behind, may: tuple[str, ...], golden: Golden) -> None:
    behind.knows("alice", may=may)
    for name in ("web01", "nope"):
        status, answer = await behind.asking.get(f"{PATH}?namespace=demo&name={name}", **BEARER)
        assert status == 403
        golden(answer["error"])
    vmis = "/apis/kubevirt.io/v1/namespaces/demo/virtualmachineinstances"
    assert not any(asked.path.startswith(vmis) for asked in behind.server.asked)


async def test_the_token_shows_nowhere(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in an answer, nor in the traceback of a bug on the way."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    behind.knows("alice")
    answers = [await behind.asking.get(**BEARER), await behind.asking.get("/x", **BEARER)]
    monkeypatch.setattr(explain, "access", broken)
    answers.append(await behind.asking.get(**BEARER))

    assert [status for status, _ in answers] == [200, 404, 500]
    assert TOKEN not in json.dumps(answers)
    assert TOKEN not in "".join(map(repr, behind.asking.counted.errors))
