"""Explanations over HTTP: requests, permissions, limits, and the facts that are never disclosed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.golden_files import Golden
from tests.policies.migration.world import CLAIMED, facts, stored, vmi
from tests.review.memory import MemoryCluster
from tests.server.conftest import CountedServer, Visit, Visitor
from tests.waiting import break_off
from webhook.admission.wire import UserInfo
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import AccessKey, Key, NodesKey, ObjectKey, TokenKey, VmiKey
from webhook.k8s.types.selectors import find_malformed, is_name
from webhook.placement.machines import CLAIMS, VOLUMES
from webhook.policies.migration.explanation import SCHEMA, UNCHECKED
from webhook.server.admin import admin_application
from webhook.server.explanations import explainer
from webhook.server.explanations.explainer import MAX_QUERY, PATH, Explainer, parse_question
from webhook.settings.fields import is_loopback

ASKED = f"{PATH}?namespace=demo&name=web01&to=zone=a"
TOKEN = "SECRET-TOKEN"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
# What RBAC of impersonated users depends on goes along.
ALICE = UserInfo("alice", "7", ["devs", "ops"], {"scopes": ["x"]})
RIGHTS = {
    "VMIs": [
        AccessKey.of(ALICE, "get", "kubevirt.io", "virtualmachineinstances", "demo", name) for name in ("web01", "nope")
    ],
    "nodes": [AccessKey.of(ALICE, "list", "", "nodes")],
    "claims": [AccessKey.of(ALICE, "get", "", "persistentvolumeclaims", "demo")],
    "volumes": [AccessKey.of(ALICE, "get", "", "persistentvolumes")],
}
# An address that others may reach.
GUARDED = "0.0.0.0:0"


@dataclass
class CountedExplanations(CountedServer):
    statuses: list[int] = field(default_factory=list)

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
async def listening(visit: Visit) -> AsyncIterator[Open]:
    async def start(cluster: Cluster, address: str = "127.0.0.1:0") -> FacedExplain:
        counted = CountedExplanations()
        guarded = not is_loopback(address)
        part = Explainer(cluster, counted, builders.settings, guarded=guarded).application()
        return FacedExplain(await visit(admin_application({PATH: part}, counted, guarded=guarded), address), counted)

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
    asked = parse_question("namespace=demo&name=web01&to=zone=b&to=a.b%2Fdisk=&node=n1&name=web01")
    assert asked == ("demo", "web01", {"zone": "b", "a.b/disk": ""}, "n1", UNCHECKED)


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
        parse_question(query)
    golden(str(refused.value))
    asking = await listening(memory())
    status, answer = await asking.get(f"{PATH}?{quote(query, safe='&=%/.')}")
    assert (status, list(answer), asking.counted.crashes) == (400, ["error"], [])


@given(
    st.text(max_size=60)
    | st.lists(st.tuples(st.sampled_from(["namespace", "name", "node", "to"]), st.text(max_size=9)), max_size=6).map(
        urlencode
    )
)
def test_whatever_is_asked_is_a_question_or_a_sentence(query: str) -> None:
    try:
        asked = parse_question(query)
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
        *((f"{PATH}/x", "GET", 404), (ASKED, "POST", 405)),
        (f"{PATH}?namespace=demo&name=web01&node=n9", "GET", 404),
    ],
    ids=["below", "POST", "node"],
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
    assert len(asking.counted.crashes) == (status == 500)


# -- permissions of users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]", "[::1]:80"])
async def test_names_of_this_host(listening: Open, host: str) -> None:
    assert (await (await listening(memory())).get(Host=host))[0] == 200


@pytest.mark.control("explanations-over-http")
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "localhost.evil.example", "[::2]:80", ""])
async def test_a_page_that_lets_its_own_name_point_here(listening: Open, host: str, golden: Golden) -> None:
    asking = await listening(memory())
    status, answer = await asking.get(Host=host)
    assert (status, list(answer)) == (403, ["error"])
    golden(answer["error"])


def signed_in(*may: str, user: UserInfo | None = ALICE) -> MemoryCluster:
    """A cluster with a VM whose disks only some nodes reach; it knows whose the token is, and what Alice may see."""
    known = facts(vmi(volumes=CLAIMED)) | stored("a") | {TokenKey(TOKEN): user}
    return MemoryCluster(known | {right: what in may for what, rights in RIGHTS.items() for right in rights}, set())


@pytest.mark.control("explanations-over-http")
async def test_who_may_see_it_gets_it(listening: Open, golden: Golden) -> None:
    cluster = signed_in("VMIs", "nodes")
    asking = await listening(cluster, GUARDED)
    status, answer = await asking.get(**BEARER)

    assert asking.visitor.url.startswith("https://")
    assert (status, answer["total"], answer["eligible"]["names"]) == (200, 4, ["node-a2"])
    golden("\n".join(answer["gaps"]))
    # No claim of the VM is read, which the user may not see.
    asked = {TokenKey(TOKEN), *(rights[0] for rights in RIGHTS.values())}
    assert {key for key in cluster.reads if isinstance(key, TokenKey | AccessKey)} == asked
    assert not any(isinstance(key, ObjectKey) and key.resource in (CLAIMS, VOLUMES) for key in cluster.reads)


@pytest.mark.control("volumes-in-explanations")
async def test_who_may_see_volumes_is_sent_only_where_they_are_reached(listening: Open) -> None:
    _, answer = await (await listening(signed_in(*RIGHTS), GUARDED)).get(**BEARER)
    assert ["node-b1", "node-b2"] in [
        each["nodes"]["names"] for each in answer["reasons"] if each["origin"] == "volumes"
    ]


async def test_a_token_is_asked_about_every_time(listening: Open) -> None:
    cluster = signed_in(*RIGHTS)
    asking = await listening(cluster, GUARDED)
    assert (await asking.get(**BEARER))[0] == 200
    cluster.facts[TokenKey(TOKEN)] = None
    assert (await asking.get(**BEARER))[0] == 401


@pytest.mark.parametrize("header", [None, "", "Basic eDp5", "Bearer ", "Bearer é"])
async def test_no_token(listening: Open, header: str | None, golden: Golden) -> None:
    cluster = signed_in(*RIGHTS)
    asking = await listening(cluster, GUARDED)
    status, answer = await asking.get(**{} if header is None else {"Authorization": header})
    assert (status, list(answer)) == (401, ["error"])
    golden(answer["error"])
    assert (asking.headers["WWW-Authenticate"], cluster.reads) == ("Bearer", [])


async def test_a_token_of_nobody(listening: Open, golden: Golden) -> None:
    cluster = signed_in(user=None)
    status, answer = await (await listening(cluster, GUARDED)).get(f"{PATH}?nonsense", **BEARER)
    assert (status, cluster.reads) == (401, [TokenKey(TOKEN)])
    golden(answer["error"])


@pytest.mark.control("explanations-over-http", "reveals-to-a-bearer")
@pytest.mark.parametrize("may", [("nodes",), ("VMIs",), ()], ids=["nodes", "VMIs", "nothing"])
async def test_who_may_not_see_it_learns_nothing(listening: Open, may: tuple[str, ...], golden: Golden) -> None:
    cluster = signed_in(*may)
    asking = await listening(cluster, GUARDED)
    for name in ("web01", "nope"):
        status, answer = await asking.get(f"{PATH}?namespace=demo&name={name}", **BEARER)
        assert status == 403
        golden(answer["error"])
    assert not any(isinstance(key, ObjectKey | VmiKey) for key in cluster.reads)


async def test_the_token_shows_nowhere(listening: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in an answer, nor in the traceback of a bug on the way."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    asking = await listening(signed_in(*RIGHTS), GUARDED)
    answers = [await asking.get(**BEARER), await asking.get(f"{PATH}/x", **BEARER)]
    monkeypatch.setattr(explainer, "authorize", broken)
    answers.append(await asking.get(**BEARER))

    assert [status for status, _ in answers] == [200, 404, 500]
    assert TOKEN not in json.dumps(answers)
    assert TOKEN not in "".join(map(repr, asking.counted.crashes))
