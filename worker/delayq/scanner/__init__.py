"""Leader election, the wake-up of workers in time, and the export of what a queue holds."""
