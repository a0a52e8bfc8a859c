"""Assemble a worker, a scanner or a reaper, and run it."""
