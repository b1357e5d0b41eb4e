"""The policy `linkwise-fence`, by which the API server refuses what a past leader writes."""

from runtime.kube.client import ApiError, KubeError

_NAME = "linkwise-fence"
_DENIED = f"ValidatingAdmissionPolicy '{_NAME}' with binding '{_NAME}' denied request: "

GRANTING = {"timeout": "2s"}
"""Parameters of every write that gives GPUs. After this time the API server gives the write up, so
that a later read shows its outcome."""


class LeadershipLost(Exception):  # noqa: N818 - it says all.
    """Another process leads by now, so that nothing more may be written."""


def is_leadership_lost(error: KubeError) -> bool:
    """Tell whether a write was refused because another process leads by now.

    Only a cause of status 403 counts, and only how it begins: there the API server names the policy
    that denied the request. The error's message has the pod's name, and other policies may quote
    the pod, so that users can write the policy's name there. Where the policy could not be
    evaluated, which a pod can bring about, the status is 422.

    Source: kubernetes v1.36, staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating,
    `dispatcher.go`.
    """
    return (
        isinstance(error, ApiError)
        and error.status == 403
        and any(cause.startswith(_DENIED) for cause in error.causes)
    )
