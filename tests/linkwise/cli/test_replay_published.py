"""The result that the authors of FGD publish, on a copy of their trace.

`LINKWISE_TRACES` is the folder `cluster-trace-gpu-v2023/csv` of `docs/replay.md`.
"""

import json
import os
from pathlib import Path
from statistics import median

import pytest

PUBLISHED = 0.9523
"""The median part of the GPUs that is allocated when the jobs ask for all of them, over ten seeds
(`analysis_allo_discrete.csv` of the authors' simulator)."""
DISTANCE = 0.01
"""Other seeds draw other jobs, and jobs without GPUs, which take CPU there, are left out."""


@pytest.mark.skipif("LINKWISE_TRACES" not in os.environ, reason="needs a copy of the openb trace")
@pytest.mark.timeout(1200)
def test_fgd_allocates_as_much_as_its_authors_publish(linkwise):
    folder = Path(os.environ["LINKWISE_TRACES"])
    pods, nodes = folder / "openb_pod_list_default.csv", folder / "openb_node_list_gpu_node.csv"
    words = f"replay {pods} --fleet {nodes} --until full --seeds 10 --policies fgd -o json"

    code, out, _ = linkwise(*words.split())

    assert code == 0
    runs = json.loads(out)["policies"][0]["runs"]
    assert median(run["allocated_at_last_arrival"] for run in runs) == pytest.approx(
        PUBLISHED, abs=DISTANCE
    )
