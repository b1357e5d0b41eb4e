"""Kubernetes manifests: YAML and JSON with line numbers, and the pods of workloads. Pure.

Start at `workload`, which expands a workload into pod templates. A `value` knows its file and line.
"""
