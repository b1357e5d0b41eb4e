"""NVIDIA's CDI specification on a node with real containers: generated, replaced, or missing."""

import json

import pytest
from controlplane.node.chain import container
from controlplane.process import wait_until

from linkwise.cluster import keys


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def wait_for_offer(chain, gpus):
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == gpus, f"the node offers {gpus} GPUs")


def driver_of(chain, name):
    """Create a Job with a GPU; return the versions of the driver that its container sees.

    The node may still offer GPUs of the driver before: then the kubelet rejects the first pod.
    """
    chain.create_job(name, container({keys.GPU_WHOLE: 1}))
    pod = chain.wait_for_pod_of(name)
    assert chain.has(pod) == chain.recorded(pod)
    return chain.seen(pod).drivers


def published_driver(chain):
    return json.loads(chain.agent.published["data"][keys.TOPOLOGY_MACHINE])["driver"]


def test_the_specification_is_generated_again_for_each_driver(chain):
    assert driver_of(chain, "found") == {"535.161.08"}

    # From here on only the toolkit writes specifications.
    chain.gpus.install_toolkit()
    chain.gpus.spec_file.unlink()
    chain.agent.kill()
    chain.agent.start()
    wait_for_offer(chain, 8)
    assert driver_of(chain, "generated") == {"535.161.08"}

    chain.gpus.nvml.driver = "550.54.15"
    chain.gpus.install_toolkit()
    chain.gpus.nvml.load_driver()
    wait_until(lambda: published_driver(chain) == "550.54.15", "the new driver is published")
    wait_for_offer(chain, 8)
    assert driver_of(chain, "replaced") == {"550.54.15"}
    chain.wait_until_books_agree()


def test_a_node_without_a_specification_offers_nothing_and_an_event_has_the_reason(chain):
    chain.gpus.remove_toolkit()
    chain.gpus.spec_file.unlink(missing_ok=True)
    chain.gpus.nvml.load_driver("560.28.03")

    wait_for_offer(chain, 0)

    wait_until(
        lambda: any(
            "nvidia-ctk cannot be started" in message
            for message in chain.events("NoGPUsOffered", chain.node.name)
        ),
        "an Event has the reason",
    )
    chain.gpus.write_spec()
    wait_for_offer(chain, 8)
    assert driver_of(chain, "pod") == {"560.28.03"}
