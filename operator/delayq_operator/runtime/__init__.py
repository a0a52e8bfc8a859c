"""The operator process: composition, probes, command line."""
