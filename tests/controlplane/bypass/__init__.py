"""Random requests for more GPUs than admitted, and a check of the GPUs that pods got."""
