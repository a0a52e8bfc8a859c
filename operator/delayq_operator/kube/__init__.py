"""Access to the Kubernetes API: client, kopf, leader election."""
