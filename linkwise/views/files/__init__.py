"""Readers of files: manifests, policies, clusters and machines."""
