"""Access to the Kubernetes API: client, kopf, reflectors, leader election."""
