"""The documentation's site: what MkDocs makes of the pages, and what is checked of the result."""
