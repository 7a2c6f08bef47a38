"""How long commands take on large inputs: `review` of 10,000 VMs, and a rolling drain of 5,000 nodes."""
