"""Labels and annotations by which nodes state that their GPUs are offered in parts.

NVIDIA's GPU feature discovery and MIG manager, HAMi's device plugin, and GKE write them.
"""

GFD_SHARING = "nvidia.com/gpu.sharing-strategy"
"""`none`, `time-slicing` or `mps`."""
GFD_SLICES = "nvidia.com/gpu.slices.gi"
"""GPU instances of each MIG device, where these are offered as whole GPUs."""
GPU_PRESENT = "nvidia.com/gpu.present"
"""`true`: NVIDIA's operator found GPUs of NVIDIA on the PCI bus."""
ACCELERATOR_LABELS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
    "aliyun.accelerator/nvidia_name",
)
"""Labels by which providers name the GPUs of a node, whether a plugin offers them or not."""
MIG_STRATEGY = "nvidia.com/mig.strategy"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
HAMI_REGISTER = ("hami.io/node-nvidia-register", "4pd.io/node-nvidia-register")
"""An annotation of HAMi, the second one under its former name: its cards, each with the number of
parts; JSON, before version 2.5 a list with colons and commas."""
GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
