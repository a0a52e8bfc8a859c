"""Leader election, timely wake-up of workers, and the queue's metrics."""
