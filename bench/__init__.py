"""Benchmarks: what a review costs (`bench.reviews`) and what the project is for (`bench.placement`)."""
