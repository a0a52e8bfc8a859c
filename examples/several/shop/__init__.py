"""A shop, as far as this example needs one."""
