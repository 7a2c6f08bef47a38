"""What each policy decides, and where."""
