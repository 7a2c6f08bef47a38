"""The background scan for objects that are not as mode enforce would make them."""
