"""Conditions, reasons and Events: what users are told."""
