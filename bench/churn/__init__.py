"""An hour under churn: a replica before a real API server that holds a large cluster, in which everything changes."""
