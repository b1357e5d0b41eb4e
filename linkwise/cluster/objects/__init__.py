"""Kubernetes objects, as far as Linkwise reads them: pods, quantities, node selectors."""
