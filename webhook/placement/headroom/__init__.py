"""Whether any one node of a cluster may be lost, and whether that stays so when one more VM starts."""
