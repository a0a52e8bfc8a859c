"""What idle processes have in memory, beside those of another commit."""
