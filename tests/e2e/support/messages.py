"""The webhook's messages to users, parsed: their author, the policy and mode, the text, and the code."""

from __future__ import annotations

import re

import msgspec

_SAID = re.compile(
    r"(?:admission webhook \"(?P<webhook>[^\"]+)\" denied the request: )?"
    r"kubevirt-webhook \((?P<policy>[a-z]+)(?:, (?P<mode>[a-z]+))?\): (?P<text>.*) \[(?P<code>[a-z-]+)\]",
    re.DOTALL,
)


class Said(msgspec.Struct, frozen=True):
    """One sentence of the webhook; ``webhook`` is the entry that denies, and empty in a warning."""

    webhook: str
    policy: str
    mode: str
    text: str
    code: str


def parse(message: str) -> Said:
    found = _SAID.fullmatch(message)
    assert found, message
    return Said(**{name: value or "" for name, value in found.groupdict().items()})
