"""The GPUs of this node, as the driver reports them."""
