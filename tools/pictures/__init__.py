"""Pictures of the documentation: `python -m tools.pictures.top` and its siblings make them, from the project root."""
