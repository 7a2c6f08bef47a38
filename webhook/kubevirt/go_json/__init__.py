"""Objects as Go's encoding/json reads and writes them."""
