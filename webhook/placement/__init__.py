"""Where a VM may run: what its launcher pod asks of nodes, and which nodes have it."""
