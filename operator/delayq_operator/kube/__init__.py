"""The way to the Kubernetes API: client, kopf, watches that it cannot do, the Lease of the leader."""
