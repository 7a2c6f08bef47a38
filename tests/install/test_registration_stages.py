from __future__ import annotations

from typing import Any

from webhook.install.registration import NOT_YET, stage, uncallable


def entry(name: str, bundle: str = "", **more: Any) -> dict[str, Any]:
    config = {"url": f"https://localhost/{name}", **({"caBundle": bundle} if bundle else {})}
    return {"name": name, "clientConfig": config, "matchConditions": [{"name": "c", "expression": "true"}], **more}


def configuration(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "K", "metadata": {"name": "n"}, **({"webhooks": list(entries)} if entries else {})}


def test_what_stays_stays_as_it_was_what_goes_is_gone_what_comes_matches_nothing() -> None:
    wanted = configuration(entry("stays", timeoutSeconds=2), entry("comes"))
    live = configuration(entry("goes", "PEM"), entry("stays", "PEM", timeoutSeconds=1))

    assert stage(wanted, live) == configuration(
        entry("stays", timeoutSeconds=1), {**entry("comes"), "matchConditions": [NOT_YET]}
    )
    assert live["webhooks"][1]["clientConfig"]["caBundle"] == "PEM"


def test_the_first_time_nothing_matches() -> None:
    for live in (None, configuration()):
        (only,) = stage(configuration(entry("comes")), live)["webhooks"]
        assert only["matchConditions"] == [NOT_YET]


def test_one_without_entries_is_left_without() -> None:
    assert stage(configuration(), configuration(entry("goes"))) == configuration()
    assert stage(configuration(), None) == configuration()


def test_uncallable() -> None:
    wanted = configuration(entry("one"), entry("two"), entry("three"))

    assert uncallable(wanted, None) == ["one", "two", "three"]
    assert uncallable(wanted, configuration(entry("one", "PEM"), entry("two"))) == ["two", "three"]
    assert uncallable(configuration(), None) == []
