"""Change the number of shards of a queue in use."""
