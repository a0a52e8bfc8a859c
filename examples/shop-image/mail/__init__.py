"""A shop's mail, as far as this example needs it."""
