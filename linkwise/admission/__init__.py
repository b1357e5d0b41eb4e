"""Admission of one pod, pure: it is read, validated and patched.

`read` has what a pod requests, `patch` the changes, each by its rule, `decide` the
outcome with its findings, and `dry_run` the same for a manifest.
"""
