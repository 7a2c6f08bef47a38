"""Makes a release: every file of it from one commit, byte by byte the same wherever it is made."""
