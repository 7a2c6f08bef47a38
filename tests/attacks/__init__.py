"""Attacks by tenants: objects that cost much to evaluate, or that try to get around a rule."""
