"""Conditions, reasons and Events."""
