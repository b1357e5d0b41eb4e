"""Read what ResourceClaims and ResourceClaimTemplates of users ask for, and the GPUs of their pods.

A pod names a claim, or a template from which kube-controller-manager makes one for this pod alone.
Linkwise allocates a claim only if it evaluates all of it as kube-scheduler does; every other one is
delegated to that.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""
