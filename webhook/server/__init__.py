"""The listeners: requests, TLS, health and metrics."""
