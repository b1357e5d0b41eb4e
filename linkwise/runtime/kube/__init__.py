"""Client, reflector and leader election for the Kubernetes API."""
