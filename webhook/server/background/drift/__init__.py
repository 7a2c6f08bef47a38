"""The background scan for objects that are not as `enforce` would make them."""
