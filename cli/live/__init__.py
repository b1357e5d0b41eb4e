"""Readers of live clusters: kubeconfig, API server, dry-run API."""
