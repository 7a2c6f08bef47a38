"""A client of the API server: requests, lists, watches, and what its answers mean."""
