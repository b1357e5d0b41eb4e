"""Titles of findings, as in `docs/findings.md`: the rules of SARIF have them. Pure."""

from collections.abc import Mapping

from linkwise.cluster.container_variables import ENV_VISIBLE_DEVICES
from linkwise.cluster.finding import Code

TITLES: Mapping[str, str] = {
    Code.CORE_STEP: "Compute that is no multiple of 5 from 5 to 100",
    Code.CORE_ALONE: "Compute without memory",
    Code.MEMORY_WHOLE: "GPU memory that is no whole number of GiB, or negative",
    Code.MEMORY_UNITS: "More GPU memory than any card has: a wrong unit",
    Code.COUNT_LABEL: "A number of cards that is not a number",
    Code.COUNT_DIVIDES: "Memory that does not divide evenly over the cards",
    Code.TWO_FAMILIES: "Two kinds of GPU resources in one pod",
    Code.GPU_WHOLE: (
        "A fraction of a GPU, or a negative amount, of a resource that counts whole GPUs"
    ),
    Code.REQUEST_IS_LIMIT: "A request that differs from its limit",
    Code.QUANTITY: "An amount that Kubernetes cannot parse",
    Code.CAPACITY: "More than any empty node has",
    Code.NODE_NAME: "A node name on a pod whose GPUs Linkwise chooses",
    Code.VISIBLE_DEVICES: f"`{ENV_VISIBLE_DEVICES}` in a pod whose GPUs Linkwise chooses",
    Code.MPS_LIMIT: "A limit of MPS that allows more than the pod requests",
    Code.RECORD_REMOVED: "An allocation record in the manifest",
    Code.SCHEDULER: (
        "Another scheduler, for a pod whose GPUs Linkwise chooses with the help of a scheduler"
    ),
    Code.NODE_TERMS: "More node terms than planning reads",
    Code.ENVIRONMENT: (
        "A variable or mount that would give a container GPUs that it does not request"
    ),
    Code.UNREADABLE: "A pod that cannot be read, or is too large to be reviewed in time",
    Code.COUNT_UNUSED: "A number of cards for a resource that is not a share",
    Code.PRIVILEGED: "A privileged container in a pod whose GPUs Linkwise chooses",
    Code.MISSPELT: "A resource name similar to that of a GPU resource",
    Code.CDI_ANNOTATION: (
        "An annotation that gives a container devices, in a pod whose GPUs Linkwise chooses"
    ),
    Code.INJECTION: "The policy's way of GPUs into containers does not fit the pod",
    Code.CLAIMS: "Devices by resource claims (DRA)",
    Code.EXCLUSIVE_CPUS: "Exclusive CPUs that may be on another socket than the pod's GPUs",
    Code.CLAIM_REFERENCE: "A claim of Linkwise in a pod for which it was not made",
    Code.NO_CLAIM: "A pod that cannot get its GPUs by a claim",
    Code.CLAIMS_LABEL: "A label about claims that is neither `true` nor `false`",
    Code.APPLIED_AGAIN: "A pod whose server-side apply is refused the second time",
    Code.CLASS: "A compute class that ACS does not have",
    Code.QOS: "A quality of service that ACS does not have, or not for this class",
    Code.MODEL: "A GPU model that the catalogue does not have",
    Code.DRIVER: "A driver version that the model does not have",
    Code.MODEL_COUNT: "A number of GPUs that the model does not offer",
    Code.MODEL_MISSING: "A pod of class `gpu` without a GPU model",
    Code.MODEL_CONTRADICTS: "A label that contradicts the pod's own node selection",
    Code.SHARED_ONE: "More than one shared GPU in a container, where the plugin rejects this",
    Code.NOT_ENFORCED: "A time-sliced GPU: its pods are not isolated",
    Code.GANG_ORDERED: "A gang whose second pod waits for its first",
    Code.GANG_SIZE: "A gang without a size, with one that is not a number, or with several",
    Code.GANG_UNMOVABLE: "A gang that cannot be moved once placed",
    Code.GANG_LINK: "An unknown value of the link requirement",
    Code.GANG_COUNTED: "A gang that is left to NVIDIA's plugin",
    Code.GANG_WAITS_FOR_PART: "A gang with pods that are created only when others of it run",
    Code.GANG_GROUPS: "A gang that starts only with other gangs",
    Code.GANG_POD_BY_POD: "A distributed job whose pods are placed one by one",
    Code.PROFILE: "Invalid profiles, or a selector without effect",
    Code.POLICY: "An invalid policy, or a part of it without effect",
    Code.RISKY_SELECTOR: "A selector that may match or set more than intended",
    Code.CHAINED_SELECTOR: "A selector that depends on the effect of another one",
    Code.UNREACHED_SELECTOR: "A selector for pods that never reach the webhook",
    Code.NAMESPACE_UNKNOWN: "A namespace with unknown labels",
    Code.INTERNAL: "A fault of Linkwise, not of the manifest",
}
"""By code. A server may have codes that this version does not know."""
