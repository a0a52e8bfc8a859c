"""`make cluster`: the Kubernetes of one node that tests/node has, in the background, with delayq on it."""
