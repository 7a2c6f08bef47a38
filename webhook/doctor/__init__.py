"""What is wrong with an installation: one check a module, one report."""
