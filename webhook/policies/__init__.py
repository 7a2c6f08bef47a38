"""What each job decides, and where."""
