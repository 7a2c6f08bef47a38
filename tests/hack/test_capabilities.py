from __future__ import annotations

from hack import capabilities
from webhook.kubevirt.releases.capabilities import CAPABILITIES


def test_each_capability_is_asked_for_in_one_place() -> None:
    assert {name: len(files) for name, files in capabilities.places().items()} == dict.fromkeys(CAPABILITIES, 1)


def test_the_page_says_what_the_modules_say() -> None:
    """Else run ``python -m hack.capabilities``."""
    page = capabilities.PAGE.read_text()

    assert capabilities.written(page) == page
