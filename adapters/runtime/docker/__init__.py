"""Runtime and images over the Docker Engine API."""
