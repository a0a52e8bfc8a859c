"""Parts that all processes share: loops, shard groups of shards, signals, probes, metrics, logs."""
