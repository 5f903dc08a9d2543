"""What works on logs, clusters and configurations from outside."""
