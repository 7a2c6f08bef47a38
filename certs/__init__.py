"""Serving certificates: where they come from and how they change. Knows nothing of webhooks."""
