"""No variable of ours hides devices that a pod gets from another system."""

import pytest
from support.admission import ARENA, EXACT, admitted, env_of
from support.builders import a_pod

from linkwise.cluster import container_variables, keys

OTHERS = {
    "MIG": {"resources": {"limits": {f"{keys.MIG_PREFIX}1g.5gb": 1}}},
    "HAMi": {"resources": {"limits": {keys.HAMI_RESOURCES[0]: 4000}}},
    "AMD": {"resources": {"requests": {f"{keys.AMD_PREFIX}gpu": 1}}},
    "another name of NVIDIA's plugin": {"resources": {"limits": {"nvidia.com/a100": 1}}},
    "DRA": {"resources": {"claims": [{"name": "gpu"}]}},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_pod_of_a_gang_with_devices_of_others_gets_no_variable(other):
    labels = {keys.POD_GROUP: "job"}
    pod = {**a_pod({"cpu": 1}, {"cpu": 1}, labels=labels), "spec": {"containers": [{"name": "a"}]}}
    pod["spec"]["initContainers"] = [{"name": "b", **other}]
    by_pod = {**a_pod({"cpu": 1}, labels=labels)}
    by_pod["spec"]["resourceClaims"] = [{"name": "gpu"}]

    assert admitted(pod) == pod
    assert admitted(by_pod) == by_pod


def test_worker_of_a_counted_gang_with_devices_of_others_gets_no_variable():
    pod = a_pod({keys.NVIDIA_GPU: 1}, OTHERS["MIG"]["resources"]["limits"], {}, labels=ARENA)

    found = admitted(pod, capacity=EXACT)

    assert [env_of(found, i) for i in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_container_with_devices_of_others_beside_chosen_gpus_gets_no_variable(other):
    pod = a_pod({keys.GPU_WHOLE: 1})
    pod["spec"]["containers"] += [{"name": "other", **other}, {"name": "plain"}]

    found = admitted(pod)

    assert env_of(found, 1) == {}
    assert env_of(found, 2) == {container_variables.ENV_VISIBLE_DEVICES: "void"}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("limits", [{keys.GPU_WHOLE: 1}, {"cpu": 1}])
def test_variable_that_would_add_gpus_to_devices_of_others_is_removed(limits, other):
    pod = a_pod(limits)
    env = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod["spec"]["containers"].append({"name": "other", "env": env, **other})

    assert env_of(admitted(pod), 1) == {}


def test_amount_of_0_of_others_asks_for_no_devices():
    pod = a_pod({f"{keys.MIG_PREFIX}1g.5gb": 0}, labels={keys.POD_GROUP: "job"})

    assert env_of(admitted(pod)) == {container_variables.ENV_VISIBLE_DEVICES: "void"}
