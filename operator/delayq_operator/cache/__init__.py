"""Informer caches of the watched objects."""
