"""Kubernetes manifests: what people wrote, with its lines, and the pods that are made of it. Pure.

Read `workload` (which pods a manifest makes). `value` keeps the line of everything.
"""
