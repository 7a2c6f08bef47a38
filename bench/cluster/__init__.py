"""What admission costs in a whole API server: with no webhook, with this one, and with what one would pick instead."""
