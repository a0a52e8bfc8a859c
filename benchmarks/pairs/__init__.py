"""Speed of this build beside another commit: alternating pairs, and what two runs of one build differ by."""
