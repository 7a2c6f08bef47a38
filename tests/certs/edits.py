"""Secrets of a CA as an admin edits them by hand."""

from __future__ import annotations

from datetime import timedelta

from certs.authority import Authority
from certs.source import self_signed
from certs.state import CA_CRT, CA_KEY, NEXT_KEY, RETIRED, ROTATED
from tests.certs.memory import HOST, START


def garbage(data: dict[str, bytes]) -> None:
    data.update({CA_CRT: b"\xff\x00", CA_KEY: b"no", RETIRED: b"{", ROTATED: b"yesterday"})


def without_key(data: dict[str, bytes]) -> None:
    del data[CA_KEY]


def mismatch(data: dict[str, bytes]) -> None:
    data[CA_KEY] = Authority.new([HOST], START, timedelta(days=1)).key_pem


def expired_ca(data: dict[str, bytes]) -> None:
    old = Authority.new([HOST], START - timedelta(days=9), timedelta(days=1))
    data.update({CA_CRT: old.pem, CA_KEY: old.key_pem})


def another_ca(data: dict[str, bytes]) -> None:
    other = Authority.new([HOST], START, timedelta(days=300))
    data.update({CA_CRT: other.pem, CA_KEY: other.key_pem})


def other_hosts(data: dict[str, bytes]) -> None:
    other = Authority.new(["elsewhere.svc"], START, timedelta(days=300))
    data.update({CA_CRT: other.pem, CA_KEY: other.key_pem})


def no_authority(data: dict[str, bytes]) -> None:
    pair = self_signed([HOST], START)
    data.update({CA_CRT: pair.certificate, CA_KEY: pair.key})


def emptied(data: dict[str, bytes]) -> None:
    data.clear()


def half_next(data: dict[str, bytes]) -> None:
    data[NEXT_KEY] = b"?"


EDITS = [garbage, without_key, mismatch, expired_ca, another_ca, other_hosts, no_authority, emptied, half_next]
