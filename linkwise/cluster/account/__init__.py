"""The account of GPUs, which never gives one to two pods."""
