"""What a cluster needs to call us."""
