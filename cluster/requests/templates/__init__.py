"""Read what ResourceClaimTemplates of users ask for, and the GPUs that pods get by them.

kube-controller-manager makes a claim from the template, for this pod alone. Linkwise allocates that
claim only if it evaluates all of it as kube-scheduler does; every other claim is left to that.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""
