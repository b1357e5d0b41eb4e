"""The control daemon of NVIDIA's Multi-Process Service."""
