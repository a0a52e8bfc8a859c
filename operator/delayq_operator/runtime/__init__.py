"""The process: parts put together, probes, command line."""
