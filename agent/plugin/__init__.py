"""The device plugins that offer the resources of this node to the kubelet."""
