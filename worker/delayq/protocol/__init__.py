"""What is in Redis: keys, envelopes, scripts, and the calls and replies around them."""
