import json

import pytest

from linkwise.manifest.objects import objects_in
from linkwise.manifest.value import InputError
from linkwise.manifest.workload import templates_of


def test_a_wrong_value_in_a_map_of_a_map_is_an_error_of_the_user():
    container = {"name": "c", "resources": {"limits": {"cpu": []}}}
    worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "bert"},
        "spec": {"mpiReplicaSpecs": {"Worker": worker}},
    }
    (value,) = objects_in(json.dumps(job), "job.json")
    with pytest.raises(InputError, match=r"spec.mpiReplicaSpecs: .*Kubernetes refuses"):
        templates_of(value, "team")
