"""What is wrong with an installation: checks and one report."""
