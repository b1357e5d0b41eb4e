"""Withdraw Linkwise from a cluster before it is deleted: the Job of the Helm chart's hook.

`manifests/emergency-stop` does the same with kubectl alone.
"""
