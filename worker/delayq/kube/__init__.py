"""The API of Kubernetes, for scanners and the operator: errors, watches, and a small client."""
