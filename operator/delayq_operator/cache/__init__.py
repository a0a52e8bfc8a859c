"""What is known of the cluster: copies of what is watched."""
