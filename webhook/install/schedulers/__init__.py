"""kube-scheduler's configuration, as far as it decides over VMs: its plugins, and the mistakes that are made."""
