"""Plans as pages: what they show, that they load nothing, and that they stay small."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.cli.runner import EXAMPLES, Refused, run
from webhook.cli.console import Paragraph
from webhook.cli.plan_page import MOST_ROWS, LossInWords, write_balance, write_loss
from webhook.forecast.balance_report import BY_USAGE, SCHEMA, BalancePlan, Counted, Move, NodeLoad, Staying
from webhook.forecast.loss_report import SCHEMA as LOSS_SCHEMA
from webhook.forecast.loss_report import LossPlan, StartPlan
from webhook.forecast.report import STARTS, Remedy

BALANCE = ("explain", "balance", "--cluster-from", EXAMPLES / "drain", "-o", "html")
LOSS = ("explain", "loss", "--any", "1", "--cluster-from", EXAMPLES / "loss", "-o", "html")
# An attribute by which a browser loads something, or leaves the file.
LOADING = {"src", "href", "srcset", "action", "data", "poster"}


class Plan(HTMLParser):
    """A page: its texts by the elements that they are in, its elements, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data

    @property
    def loaded(self) -> list[str | None]:
        return [value for _, attrs in self.elements for name, value in attrs.items() if name in LOADING]

    def rows(self) -> int:
        return sum(tag in ("tr", "li") for tag, _ in self.elements)


def bars(plan: Plan, name: str) -> list[int]:
    return [int(attrs["width"] or 0) for tag, attrs in plan.elements if tag == "rect" and attrs["class"] == f"b-{name}"]


@pytest.mark.parametrize(("command", "status"), [(BALANCE, 1), (LOSS, 1)])
def test_a_page_is_a_file_that_loads_nothing(command: tuple[str, ...], status: int) -> None:
    result = run(*command)
    plan = Plan(result.stdout)

    assert result.exit_code == status
    # The one link is to the content of the same page.
    assert plan.loaded == ["#content"]
    assert not {"script", "link", "img", "iframe", "form"} & {tag for tag, _ in plan.elements}
    assert not re.search(r"url\(|@import|javascript:", result.stdout)
    assert "default-src 'none'" in result.stdout


def test_a_balance_shows_its_moves_and_the_nodes_before_and_after() -> None:
    plan = Plan(run(*BALANCE).stdout)

    shown = " ".join(plan.text.split())
    for text in ("1. shop/queue", "3. shop/cart-1", "106 % → 84 %", "6 % → 44 %", "owner-says-no"):
        assert text in shown
    # CPU and memory of three nodes; the largest, 106 %, is a whole bar, and 84 % as much of it.
    now, then = bars(plan, "now"), bars(plan, "then")
    assert (len(now), len(then), max(now), 780 < max(then) < 810) == (6, 6, 1000, True)


def test_a_loss_shows_the_nodes_before_and_after_and_what_becomes_of_each_vm() -> None:
    plan = Plan(run(*LOSS).stdout)

    shown = " ".join(plan.text.split())
    for text in ("If node-1 is lost", "4 → 0", "0 → 1", "shop/db", "Stay down", "Uncordon", "of other controllers"):
        assert text in shown
    assert (bars(plan, "now")[:2], bars(plan, "then")[:2]) == ([1000, 1000], [0, 0])


HEADLINE = Paragraph("It is so", "bold red")
MANY = 10_000
NOTHING = Counted(0, 0, 0, 0)
HOSTILE = '</li><script>alert(1)</script>"\u202e password=hunter2canary'


def balance(
    moves: tuple[Move, ...], loads: tuple[NodeLoad, ...], staying: tuple[Staying, ...], texts: tuple[str, ...]
) -> BalancePlan:
    return BalancePlan(
        schema=SCHEMA,
        by=BY_USAGE,
        target=10,
        deviation=20,
        deviation_after=15,
        is_reached=False,
        memory=1,
        seconds=1,
        moves=moves,
        loads=loads,
        staying=staying,
        notes=texts,
        assumptions=texts[:1],
        gaps=texts,
    )


def test_a_plan_for_thousands_of_nodes_and_vms_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    move = Move("shop", "web", "node-1", "node-9999", "node-9999", 1.0, 2.0, 2**30, 30, NOTHING, NOTHING)
    loads = tuple(NodeLoad(f"node-{number}", 1, 2, 3, 4) for number in range(MANY))
    staying = tuple(Staying("no-room", "no other node can take it now", ("shop/db",) * MANY) for _ in range(MANY))
    write_balance(balance((move,) * 1000, loads, staying, ("a note",) * MANY), HEADLINE)
    page = Plan(out := capsys.readouterr().out)

    assert page.rows() < 6 * MOST_ROWS
    assert len(out) < 600_000
    assert "Used of the nodes" in page.text
    # A node that the plan touches is shown, wherever it stands.
    assert "node-9999" in page.text
    assert f"{MANY - MOST_ROWS} more nodes" in page.text
    # What is left out is counted, wherever it is.
    assert f"{MANY - MOST_ROWS} more reasons" in page.text
    assert f"{2 * (MANY - MOST_ROWS)} more sentences" in page.text

    vms = tuple(
        StartPlan("shop", f"vm-{number}", "node-1", STARTS, "has-room", to=f"n-{number}") for number in range(MANY)
    )
    words = LossInWords(["x"] * MANY, "", [("T:", [*vms])], str, [], ["a gap"] * MANY)
    changes = tuple(Remedy(f"remove the taint {number}", ("shop/db",)) for number in range(MANY))
    write_loss(LossPlan(LOSS_SCHEMA, 0, False, ("node-1",), vms=vms, changes=changes), HEADLINE, words)
    page = Plan(out := capsys.readouterr().out)
    assert page.rows() < 6 * MOST_ROWS
    assert f"{MANY - MOST_ROWS} more changes" in page.text
    assert f"{MANY - MOST_ROWS} more sentences" in page.text
    assert len(out) < 600_000


def test_what_tenants_name_stays_text_and_secrets_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    move = Move(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0, 2.0, 2**30, 30, NOTHING, NOTHING)
    staying = (Staying("no-room", HOSTILE, (HOSTILE,)),)
    write_balance(balance((move,), (), staying, (HOSTILE,)), HEADLINE)
    vm = StartPlan(HOSTILE, HOSTILE, HOSTILE, STARTS, "has-room", to=HOSTILE)
    loss = LossPlan(LOSS_SCHEMA, 0, False, (HOSTILE,), vms=(vm,), notes=(HOSTILE,))
    write_loss(
        loss, HEADLINE, LossInWords([HOSTILE], HOSTILE, [("T:", [vm])], lambda vm: vm.name, [HOSTILE], [HOSTILE])
    )

    out = capsys.readouterr().out
    assert "alert(1)" in out
    assert not re.search("<script|hunter2canary|\u202e", out)


@pytest.mark.parametrize("output", ["yaml", "html"])
def test_a_run_prints_no_objects_and_no_page(output: str, refused: Refused) -> None:
    # What is wrong with the options is said before anyone is asked.
    result = run("explain", "balance", "--run", "-o", output, "--prometheus", "http://localhost:1")
    refused(result)
    assert f"-o {output}" in result.stderr
