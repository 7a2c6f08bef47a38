"""What one review of a migration costs over the index of all nodes, beside looking at each node."""
