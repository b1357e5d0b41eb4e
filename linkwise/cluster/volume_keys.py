"""Labels, annotations and other names on the wire about PersistentVolumes, all of Kubernetes."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ZONE_BEFORE = "failure-domain.beta.kubernetes.io/zone"
REGION_BEFORE = "failure-domain.beta.kubernetes.io/region"
"""Labels of nodes and volumes; those before Kubernetes 1.17 have the names with `beta`."""

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is made."""
STORAGE_CLASS_BEFORE = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes administrators make."""
