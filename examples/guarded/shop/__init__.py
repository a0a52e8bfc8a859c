"""The shop's code."""
