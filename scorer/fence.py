"""The policy `linkwise-fence`, with which the API server refuses writes of past leaders."""

from linkwise.runtime.kube.client import ApiError, KubeError

_NAME = "linkwise-fence"
_DENIED = f"ValidatingAdmissionPolicy '{_NAME}' with binding '{_NAME}' denied request: "

WRITE_TIMEOUT = {"timeout": "2s"}
"""Parameters of every write that allocates GPUs. After this time the API server gives up the write,
so that a later read shows its outcome."""


class LeadershipLost(Exception):  # noqa: N818 - it ends a term, as planned.
    """Another process leads, so that nothing more may be written."""


def is_leadership_lost(error: KubeError) -> bool:
    """Return whether a write was refused because another process leads.

    Only a cause of status 403 counts, and only its prefix: there the API server names the policy
    that denied the request. The error's message contains the pod's name, and other policies may
    quote the pod, so that users can write the policy's name there. If the policy could not be
    evaluated, which a pod can cause, the status is 422.

    Source: kubernetes v1.36, staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating,
    `dispatcher.go`.
    """
    return (
        isinstance(error, ApiError)
        and error.status == 403
        and any(cause.startswith(_DENIED) for cause in error.causes)
    )
