"""Ask scanners and workers for their metrics, on time."""
