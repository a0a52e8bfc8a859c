"""Names, types, errors and small parts that all others build on."""
