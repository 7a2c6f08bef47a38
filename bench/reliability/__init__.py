"""Attacks that are too long for a test: each is run once, and what the reviews beside it felt is printed.

A client here never repeats a request. ``failed`` is everything but an answer with status 200.
"""
