"""One reconciliation: facts, plan, apply, prune, deletion, report."""
