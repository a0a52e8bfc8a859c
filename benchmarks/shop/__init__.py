"""The shop of examples/shop, with delayq and with Celery."""
