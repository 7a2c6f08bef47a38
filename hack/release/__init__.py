"""Makes a release: every file of it from one commit, byte by byte the same wherever it is made."""


class ReleaseError(Exception):
    """Why a release cannot be made, and what to do, in one sentence."""
