"""Parts that all processes share: loops, lanes of shards, signals, probes, metrics, logs."""
