"""Where facts come from: a directory of YAML, or a running cluster."""
