"""Fixtures of the tests of clusters."""

from __future__ import annotations

from tests.cluster.fake_apiserver import apiservers, server, transport  # noqa: F401
from tests.cluster.live_case import case  # noqa: F401
