"""What all tests run under."""

from __future__ import annotations

from hypothesis import settings

# A slow machine is no bug: no test of ours asserts how long something takes.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
