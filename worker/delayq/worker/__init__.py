"""Claim, run and settle tasks; extend leases; drain."""
