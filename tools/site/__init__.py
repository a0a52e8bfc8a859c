"""What the documentation site needs beside mkdocs.yml: hooks.py, and parts of the theme."""
