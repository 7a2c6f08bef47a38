"""Fixtures of the tests of reviews."""

from __future__ import annotations

from tests.cluster.fake_apiserver import apiservers  # noqa: F401
