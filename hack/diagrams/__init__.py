"""The pictures of docs/architecture.md, drawn from the code, so that they cannot show another program."""
