"""One YAML file of settings, checked, followed and never half applied."""
