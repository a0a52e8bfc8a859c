"""The way to the Kubernetes API: client, watches that kopf cannot do, the Lease of the leader."""
