"""One module per kind of workload, or per group of kinds that share their fields. Pure."""
