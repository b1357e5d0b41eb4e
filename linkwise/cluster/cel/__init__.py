"""Evaluate selectors of devices: the part of CEL that is evaluated exactly as Kubernetes does.

What is outside of it is recognized when an expression is parsed, with its place. Within it, an
outcome that is not certain is a `Failure`, which no operator turns into a true selector unless
Kubernetes would do so whatever the outcome.

Source: kubernetes v1.36, `staging/src/k8s.io/dynamic-resource-allocation/cel`; cel-go v0.26.
"""
