"""Readings of the driver."""

from agent.driver.reading import GPU, DriverReading
from linkwise.topology.machine import Level


def gpu(i, **fields):
    """Return a healthy GPU whose UUID contains its index."""
    defaults = {
        "uuid": f"GPU-{i}",
        "bus_id": f"0000:{i:02x}:00.0",
        "model": "Tesla V100-SXM2-16GB",
        "memory": 16 << 30,
        "minor": i,
    }
    return GPU(i, **{**defaults, **fields})


def reading(*gpus, driver="535.161.08"):
    """Return a reading of GPUs without NVLinks; of 4 healthy ones if none are given."""
    gpus = gpus or tuple(map(gpu, range(4)))
    n = len(gpus)
    return DriverReading(
        driver=driver,
        cuda="12.2",
        gpus=gpus,
        levels=((Level.SYS,) * n,) * n,
        links=((0,) * n,) * n,
        switched=False,
    )
