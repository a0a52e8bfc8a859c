"""How many workers a queue gets, from look to look, and which of them go."""
