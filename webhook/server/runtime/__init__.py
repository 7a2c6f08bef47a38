"""A running server, put together: what is built, what runs, what ends."""
