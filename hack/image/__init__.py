"""What the Dockerfile runs, and what keeps it current."""
