"""Labels, annotations, resources, gates and other names on the wire, each once.

A test searches the packages for others. Each group names the system that defined it.
"""

# Resources: ACK and gpushare (aliyun.com), NVIDIA's device plugin (nvidia.com).
GPU_MEM = "aliyun.com/gpu-mem"
GPU_CORE = "aliyun.com/gpu-core.percentage"
GPU_COUNT = "aliyun.com/gpu-count"
"""A resource on nodes (number of cards) and a label on pods (how many cards to share)."""
GPU_WHOLE = "aliyun.com/gpu"
NVIDIA_PREFIX = "nvidia.com/"
NVIDIA_GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
AMD_PREFIX = "amd.com/"
NVIDIA_GPU_SHARED = "nvidia.com/gpu.shared"
RESOURCES = (GPU_MEM, GPU_CORE, GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED)
"""Resources that the limits of a pod's containers may request."""

# Of HAMi, which shares GPUs by a device plugin and a scheduler of its own.
HAMI_RESOURCES = ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
HAMI_SCHEDULER = "hami-scheduler"

# Node labels: the mode (pods require ACK's, which a policy writes beside ours), then older ones.
MODE, NODE_MODE = MODE_LABELS = ("linkwise.dev/mode", "ack.node.gpu.schedule")
NODE_PLACEMENT = "ack.node.gpu.placement"
NODE_GPUSHARE = "gpushare"
NODE_CGPU = "cgpu"
NODE_CGPU_OFF = "cgpu.disable.isolation"
"""`true`: the node's kernel module keeps no share within its limits."""
NODE_NAME_FIELD = "metadata.name"

# ACS: on pods, and (type, model) on nodes.
COMPUTE_CLASS = "alibabacloud.com/compute-class"
COMPUTE_QOS = "alibabacloud.com/compute-qos"
MODEL_SERIES = "alibabacloud.com/gpu-model-series"
DRIVER_VERSION = "alibabacloud.com/gpu-driver-version"
NODE_TYPE = "alibabacloud.com/node-type"
ACS_PREFIX = "alibabacloud.com/"

# GPU feature discovery (NVIDIA), node labels.
GFD_PRODUCT = "nvidia.com/gpu.product"
GFD_DRIVER = "nvidia.com/cuda.driver-version.full"
GFD_COUNT = "nvidia.com/gpu.count"
GFD_MEMORY = "nvidia.com/gpu.memory"
"""Of one GPU [MiB]."""
GFD_REPLICAS = "nvidia.com/gpu.replicas"
GFD_CLIQUE = "nvidia.com/gpu.clique"
NODE_POOLS = (
    "alibabacloud.com/nodepool-id",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)
"""Node labels by which providers name a node's pool."""

DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""Names the file that NVIDIA's device plugin reads on a node: a key of its ConfigMap."""

# Gangs: native, scheduler-plugins, arena and ACK, Koordinator, ours.
POD_GROUP = "scheduling.x-k8s.io/pod-group"
POD_GROUP_API = "scheduling.x-k8s.io/v1alpha1"
NATIVE_GROUP_API = "scheduling.k8s.io/v1beta1"
NATIVE_GROUP_API_BEFORE = "scheduling.k8s.io/v1alpha2"
"""Served by Kubernetes 1.36; removed in 1.37."""
POD_GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
POD_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
KOORDINATOR_GANG_NAME = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_GANG_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
KOORDINATOR_GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
GPU_TOPOLOGY_REPLICA = "gpu-topology-replica"
OTHER_GROUPS = (
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
    "yunikorn.apache.org/task-group-name",
)
"""Annotations by which Volcano (the first two), KAI and YuniKorn name the gang of a pod."""
KUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/podset", "kueue.x-k8s.io/managed")
"""Kueue writes one of them on each pod that it admits."""
GANG = "linkwise.dev/gang"
"""An annotation that names a pod's gang, and the scheduling gate that holds its members. As a label
of value `false` it keeps the pods of an owner from being a gang without a mark."""
GANG_SIZE = "linkwise.dev/gang-size"
GANG_KIND = "linkwise.dev/gang-kind"
"""An annotation that admission writes beside `GANG`: the kind of the owner whose pods are a gang
without a mark of their own."""
LINK = "linkwise.dev/link"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
"""An annotation: pods of one group, its leader included."""

# Kubernetes: labels, users, and keys that only it sets.
NAMESPACE_NAME = "kubernetes.io/metadata.name"
HOSTNAME = "kubernetes.io/hostname"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node."""
NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""The taints of a node that is not ready: its kubelet says so, or says nothing."""
RACK = "topology.kubernetes.io/rack"
ASW_ID = "alibabacloud.com/asw-id"
"""The access switch that a node hangs on (ACK)."""
KUBERNETES_DOMAINS = frozenset(
    {
        "kubernetes.io",
        "k8s.io",
        "apps.kubernetes.io",
        "batch.kubernetes.io",
        "statefulset.kubernetes.io",
        "topology.kubernetes.io",
    }
)
"""Prefixes of keys that only Kubernetes sets on pods; others of its subdomains people may set."""
MIRROR_POD = "kubernetes.io/config.mirror"
NODES_GROUP = "system:nodes"
"""The group of all nodes' users; the name of each is `NODE_USER_PREFIX` and the node's."""
NODE_USER_PREFIX = "system:node:"

# Our record of an allocation (annotations on pods), and what we read on nodes.
PREFIX = "linkwise.dev/"
ALLOCATION = "linkwise.dev/allocation"
VISIBLE_DEVICES = "linkwise.dev/visible-devices"
VISIBLE_DEVICES_OF = "visible-devices.linkwise.dev/"
"""Followed by a container's name, where a pod has several containers with GPUs."""
TERM = "linkwise.dev/term"
ISOLATION = "linkwise.dev/isolation"
MOVED = "linkwise.dev/moved"
"""Annotation of a Gang: which plan was given up because of a fault, and when."""
CORDON = "linkwise.dev/cordon"
RESOURCE_NAME = "linkwise.dev/resource-name"
"""A node label: the resource by which the agent offers whole GPUs, as `RESOURCE_LABELS` has it; or
`DRA_GPU_DRIVER`, which offers them itself: the agent only watches them."""
RESOURCE_LABELS = {"aliyun.com-gpu": GPU_WHOLE, "nvidia.com-gpu": NVIDIA_GPU}
"""Resources by the value of that label: a label value may not contain a slash."""

MODE_IN_USE = "linkwise.dev/mode-in-use"
"""A node annotation of the agent: the mode whose devices containers have, or that there is none.
While there is one, an admission policy refuses another mode for the node."""

# The CDI specifications that the agent writes, one for each container with GPUs.
CDI_KIND = "linkwise.dev/gpu"
"""Vendor and class of their devices."""
CDI_BINDING = "linkwise.dev/binding"
"""An annotation of the specification: container and GPUs, as JSON."""
NVIDIA_CDI_KIND = "nvidia.com/gpu"
"""Vendor and class of the devices in the specification of NVIDIA's toolkit."""

# Annotations of pods that name CDI devices, for container runtimes and NVIDIA's NRI plugin.
CDI_ANNOTATION_PREFIX = "cdi.k8s.io/"
NVIDIA_CDI_DOMAIN = "nvidia.cdi.k8s.io"
"""A key itself, and the prefix of others."""
NVIDIA_CDI_CONTAINER = "nvidia.cdi.k8s.io/container."
"""Followed by a container's name: its CDI devices, comma-separated."""

# The same record in the words of others: arena, then gpushare and ACK.
ARENA_GPU_GROUP = "topology.kubernetes.io/gpu-group"
ARENA_GPU_VISIBLE = "topology.kubernetes.io/gpu-visible"
MEM_IDX = "ALIYUN_COM_GPU_MEM_IDX"
MEM_POD = "ALIYUN_COM_GPU_MEM_POD"
MEM_DEV = "ALIYUN_COM_GPU_MEM_DEV"
MEM_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
MEM_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
MEM_ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
GPUSHARE_ALLOCATION = "scheduler.framework.gpushare.allocation"
GPUSHARE_CORE = "gpushare.alibabacloud.com/core-percentage"
RECORD = frozenset(
    {
        ALLOCATION,
        VISIBLE_DEVICES,
        TERM,
        ISOLATION,
        ARENA_GPU_GROUP,
        ARENA_GPU_VISIBLE,
        MEM_IDX,
        MEM_POD,
        MEM_DEV,
        MEM_ASSIGNED,
        MEM_ASSUME_TIME,
        GPUSHARE_ALLOCATION,
        GPUSHARE_CORE,
    }
)
"""Annotations that only the scorer writes, beside those that start with `VISIBLE_DEVICES_OF`."""


# ConfigMaps: names, namespaces, keys.
PROFILE_NAMESPACE = "kube-system"
PROFILE_NAME = "acs-profile"
PROFILE_KEY = "selectors"
POLICY_NAMESPACE = "linkwise-system"
POLICY_NAME = "linkwise"
POLICY_KEY = "policy.yaml"
TOPOLOGY_NAMESPACE = "kube-system"
"""Namespace in which agents publish topologies, and users of gpushare list unhealthy GPUs."""
TOPOLOGY_NAME_PREFIX = "topology-"
"""Name of the ConfigMap that our agent publishes, followed by the name of its node."""
TOPOLOGY_NODE = "nodename"
"""A label on a published topology: the name of its node. Its other label is `NODE_MODE`."""
TOPOLOGY_DEVICES = "devices"
TOPOLOGY_LINKS = "linkType"
TOPOLOGY_BANDWIDTH = "bandwidth"
TOPOLOGY_BANDWIDTH_ARENA = "bandwith"
"""The same, spelled as arena's code reads it (`pkg/topnode/gputopology.go` at 0ebde4d)."""
TOPOLOGY_MACHINE = "machine.json"
TOPOLOGY_MISMATCH = "mismatch"
"""Ours: how the processes on the GPUs contradict the records of pods; missing if they agree."""
TOPOLOGY_BUSY = "busy"
"""Ours: JSON of the GPUs of a claims node on which a process runs whose pod does not have them: a
text for each UUID; missing if there is none."""
TOPOLOGY_ISOLATION = "isolation"
"""Ours: what the agent saw to keep shares within their limits, `mps` or `none`."""
UNHEALTHY_NAME_PREFIX = "unhealthy-gpu-"
UNHEALTHY_KEY = "gpus"

# cluster-autoscaler.
PROVISIONING_API = "autoscaling.x-k8s.io/v1"
"""API version of ProvisioningRequests."""
BEST_EFFORT_ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""The class of ProvisioningRequests that adds all nodes or none."""
MANAGED_BY = "app.kubernetes.io/managed-by"
"""A label of Kubernetes: the program that creates and deletes an object."""

DRA_GPU_DRIVER = "gpu.nvidia.com"
"""NVIDIA's driver for dynamic resource allocation (DRA) of GPUs."""
PLACED = "linkwise.dev/placed"
"""A taint on the GPUs of claims nodes: only claims that Linkwise makes tolerate it."""
BUSY = "linkwise.dev/busy"
"""A taint on a GPU of a claims node while a process of no pod that has it runs there."""
CLAIMS = "linkwise.dev/claims"
"""A label on a pod: `true` or `false` decides whether it gets its GPUs by a ResourceClaim."""
CLAIMED_GPUS = "linkwise.dev/claimed-gpus"
"""An annotation on a pod that gets its GPUs by a ResourceClaim: JSON of the number of GPUs, by
request of the claim. Admission moves these numbers here from `nvidia.com/gpu`."""
CLAIM_PROTECTION = "resource.kubernetes.io/delete-protection"
"""A finalizer on an allocated ResourceClaim: with it, kube-controller-manager removes the
allocation when the pod has ended."""
LEFT_TO_SCHEDULER = "linkwise.dev/left-to-scheduler"
"""An annotation on a pod with ResourceClaimTemplates for GPUs: why kube-scheduler allocates its
claims. Admission writes it, and nothing depends on it."""
REQUEUED = "linkwise.dev/requeued"
"""An annotation on a pod of the scheduler beside the scorer: when the scorer found that it fits, so
that the scheduler tries it again. Nothing depends on it."""
CLASS_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Begins the name of the extended resource of each DeviceClass, followed by the name of it."""
CLAIM_PREFIX = "lw-"
"""Begins the names of ResourceClaims that Linkwise makes."""
POD_CLAIM = "linkwise"
"""Name by which a pod and its containers refer to such a claim."""
CLAIM_REQUEST_PREFIX = "container-"
"""Begins the name of a request of such a claim, followed by the index of the app container."""

DEFAULT_SCHEDULER = "default-scheduler"
SCHEDULER = "linkwise"
"""Default name of the second scheduler, where one runs beside the scorer."""
DRY_RUN_AUDIENCE = "linkwise"
"""Audience of tokens for the dry-run API; other APIs refuse such a token."""
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""The id of a token, in the `extra` of its user."""
FIT_AUDIENCE = "linkwise-scorer"
"""Audience of tokens for the fit API of the scorer, which only the webhook may call."""
DASHBOARD = "linkwise-dashboard"
"""Name of the Service of the dashboard in the cluster, and the audience of tokens for it."""
SCORER = "linkwise-scorer"
"""Name of the scorer's Lease, in the namespace of the policy, and source of its Events."""
AGENT = "linkwise-agent"
"""Source of the Events of the agent on each node."""
SCORER_ADDRESS = "linkwise.dev/address"
"""An annotation of that Lease: the address of its holder, as `host:port`."""
NVIDIA_NODES = "linkwise.dev/nvidia-gpu-nodes"
"""An annotation of that Lease: `true` while Linkwise chooses `nvidia.com/gpu` on some node."""
CLAIMS_NODES = "linkwise.dev/claims-nodes"
"""An annotation of that Lease: the number of GPUs of the largest claims node; empty without one."""
GPU_KINDS = "linkwise.dev/gpu-kinds"
"""An annotation of that Lease: JSON of the kinds of GPUs of claims nodes; empty for too many."""
REFUSED_MACHINES = "linkwise.dev/refused-machines"
"""An annotation of that Lease: JSON of the reasons, by node, why machines are not used."""
UNFENCED_NODES = "linkwise.dev/unfenced-nodes"
"""An annotation of that Lease: JSON of the reasons, by node, why claims of others may get GPUs."""
EXCLUDED_NODES = "linkwise.dev/excluded-nodes"
"""An annotation of that Lease: JSON of the nodes where units could not be bound, and until when."""
VAIN_PREEMPTIONS = "linkwise.dev/vain-preemptions"
"""An annotation of that Lease: JSON of the nodes where evictions did not help a unit."""
NOMINATIONS = "linkwise.dev/nominations"
"""An annotation of that Lease: JSON of the units for which others are being evicted."""
WEBHOOK_USER = "system:serviceaccount:linkwise-system:linkwise-webhook"
"""User name of the webhook at the API server."""
SERVER_NAME = "linkwise-webhook.linkwise-system.svc"
"""DNS name in the serving certificate of the webhook."""
SCORER_SERVER_NAME = "linkwise-scorer.linkwise-system.svc"
"""DNS name in the serving certificate of the scorer; there is no such Service."""
CERTS = "linkwise-certs"
"""Field manager and source of Events of certs, and name of the ConfigMap of their public state."""
CERTS_KEY = "status.json"
ROTATE_CA = "linkwise.dev/rotate"
"""An annotation on the Secret of the CA: requests a rotation, whatever its value."""
API_VERSION = "linkwise.dev/v1alpha1"
CLI_API_VERSION = "cli.linkwise.dev/v1"
"""API version of the documents that the command line writes."""
