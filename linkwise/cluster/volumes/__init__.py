"""PersistentVolumes and what they need of a node, as kube-scheduler judges it."""
