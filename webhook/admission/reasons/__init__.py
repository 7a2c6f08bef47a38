"""Reasons: what a code means, and the sentences of those that no policy has for itself."""
