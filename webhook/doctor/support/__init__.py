"""What the checks of an installation have in common."""
