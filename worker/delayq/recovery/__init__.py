"""Recovery of expired leases, with or without the document's check."""
