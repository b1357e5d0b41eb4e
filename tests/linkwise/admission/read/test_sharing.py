import jsonpatch
import msgspec
import pytest
from support.builders import a_container, a_pod

from linkwise.admission.read.sharing import (
    offering,
    rename_resource,
    replicas,
    sharing_findings,
    sharing_on_nodes,
)
from linkwise.cluster import keys
from linkwise.cluster.finding import Code
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.policy.document import parse_policy


def group(labels="{}", strategy="timeSlicing", **fields):
    extra = "".join(f", {key}: {value}" for key, value in fields.items())
    resources = f"resources: [{{name: {keys.NVIDIA_GPU}, replicas: 4}}]"
    config = f"{{sharing: {{{strategy}: {{{resources}{extra}}}}}}}"
    return f"{{nodeLabels: {labels}, config: {config}}}"


WHOLE = "{nodeLabels: {pool: a}, config: {}}"
RENAMED = {"renameByDefault": "true"}
FAILS = {"failRequestsGreaterThanOne": "true"}


def groups(*texts):
    return parse_policy(f"sharing: {{groups: [{', '.join(texts)}]}}").sharing.groups


def where(pod, *texts, nodes=()):
    capacity = Capacity(nodes=len(nodes), by_nvidias_names=tuple(nodes))
    return sharing_on_nodes(msgspec.convert(pod, Pod), groups(*texts), capacity)


@pytest.mark.parametrize(
    ("selector", "texts", "names"),
    [
        pytest.param({}, [], [None], id="no-groups"),
        pytest.param({}, [group()], [keys.NVIDIA_GPU], id="all-nodes"),
        pytest.param({}, [group("{pool: a}")], [keys.NVIDIA_GPU, None], id="some-nodes"),
        pytest.param({"pool": "a"}, [group("{pool: a}")], [keys.NVIDIA_GPU], id="these-nodes"),
        pytest.param({"pool": "b"}, [group("{pool: a}")], [None], id="other-nodes"),
        pytest.param({}, [WHOLE, group()], [None, keys.NVIDIA_GPU], id="some-share-nothing"),
        pytest.param(
            {},
            [group("{pool: a}", **RENAMED), group(), group("{pool: b}")],
            [keys.NVIDIA_GPU_SHARED, keys.NVIDIA_GPU],
            id="the-first-group-counts",
        ),
    ],
)
def test_node_selector_restricts_the_groups(selector, texts, names):
    pod = a_pod({keys.NVIDIA_GPU: 1}, nodeSelector=selector)

    assert [offer and offer.resource for offer in where(pod, *texts)] == names


SMALL, LARGE = {"gpu/16GiB": "true"}, {"gpu/32GiB": "true"}


@pytest.mark.parametrize(
    ("selector", "nodes", "names"),
    [
        pytest.param(LARGE, [SMALL, LARGE], [keys.NVIDIA_GPU], id="tied to one of two groups"),
        pytest.param(
            LARGE,
            [SMALL, LARGE, SMALL | LARGE],
            [keys.NVIDIA_GPU_SHARED, keys.NVIDIA_GPU],
            id="a node is of both",
        ),
        pytest.param({}, [SMALL], [keys.NVIDIA_GPU_SHARED], id="one kind of node exists"),
        pytest.param({}, [SMALL, {}], [None, keys.NVIDIA_GPU_SHARED], id="one node is of none"),
        pytest.param({"zone": "a"}, [SMALL], [keys.NVIDIA_GPU_SHARED], id="another label"),
        pytest.param(LARGE, [SMALL], [], id="no such node"),
    ],
)
def test_groups_are_restricted_to_labels_of_existing_nodes(selector, nodes, names):
    pod = a_pod({keys.NVIDIA_GPU: 1}, nodeSelector=selector)
    texts = group('{"gpu/16GiB": "true"}', **RENAMED), group('{"gpu/32GiB": "true"}')

    offers = where(pod, *texts, nodes=nodes)

    assert [offer and offer.resource for offer in offers] == names


def findings_of(limits, *texts, selector=None):
    pod = a_pod(limits, nodeSelector=selector)
    request, _ = read_request(msgspec.convert(pod, Pod))
    return list(sharing_findings(offering(where(pod, *texts), request), request))


ONE, TWO = {keys.NVIDIA_GPU: 1}, {keys.NVIDIA_GPU: 2}
SHARED_TWO = {keys.NVIDIA_GPU_SHARED: 2}


@pytest.mark.parametrize(
    ("limits", "texts", "codes"),
    [
        pytest.param(TWO, [group(**FAILS)], [Code.SHARED_ONE, Code.NOT_ENFORCED], id="fails"),
        pytest.param(ONE, [group(**FAILS)], [Code.NOT_ENFORCED], id="one-never-fails"),
        pytest.param(TWO, [group()], [Code.NOT_ENFORCED], id="time-slicing-takes-more"),
        pytest.param(TWO, [group(strategy="mps")], [Code.SHARED_ONE], id="mps-fails"),
        pytest.param(ONE, [group(strategy="mps")], [], id="mps-is-enforced"),
        pytest.param(TWO, [group("{pool: a}", **FAILS)], [], id="other-nodes-have-whole-gpus"),
        pytest.param(
            SHARED_TWO,
            [group("{pool: a}", **RENAMED, **FAILS)],
            [Code.SHARED_ONE, Code.NOT_ENFORCED],
            id="only-these-nodes-have-the-name",
        ),
        pytest.param(SHARED_TWO, [], [Code.NOT_ENFORCED], id="our-own-time-slicing"),
        pytest.param(TWO, [], [], id="whole-gpus"),
    ],
)
def test_more_than_one_shared_gpu_is_denied_if_all_nodes_refuse_it(limits, texts, codes):
    assert [limits_of_one.code for limits_of_one in findings_of(limits, *texts)] == codes


def test_denial_has_the_number_and_the_fix():
    finding = findings_of(SHARED_TWO, group(**RENAMED, **FAILS))[0]

    assert "shared by 4" in finding.message
    assert finding.value == 2
    assert finding.fix == "ask for 1, or for whole GPUs"


@pytest.mark.parametrize(
    ("texts", "number"),
    [
        ([group()], 4),
        ([group("{pool: a}")], 0),
        ([], 0),
        ([group("{pool: a}"), group().replace("replicas: 4", "replicas: 2")], 0),
    ],
    ids=["all-alike", "some-whole", "nothing-shared", "different"],
)
def test_replicas_are_known_if_all_nodes_agree(texts, number):
    pod = a_pod(ONE)
    request, _ = read_request(msgspec.convert(pod, Pod))

    assert replicas(offering(where(pod, *texts), request)) == number


def renamed(pod, *texts):
    result = rename_resource(msgspec.convert(pod, Pod), where(pod, *texts))
    if result is None:
        return None
    after = jsonpatch.apply_patch(pod, [step.wire() for step in result.operations])
    assert msgspec.convert(after, Pod) == result.pod
    return after


def test_request_is_renamed_in_limits_and_requests_of_all_containers():
    both = {"limits": {**ONE, "cpu": 1}, "requests": ONE}
    pod = a_pod(
        containers=[{"name": "a", "resources": both}, {"name": "b"}],
        initContainers=[a_container(ONE, name="i")],
    )

    after = renamed(pod, group(**RENAMED))

    limits_of_one = {keys.NVIDIA_GPU_SHARED: 1}
    assert after["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": 1, **limits_of_one},
        "requests": limits_of_one,
    }
    assert after["spec"]["initContainers"][0]["resources"] == {"limits": limits_of_one}
    assert renamed(after, group(**RENAMED)) is None


def test_request_is_renamed_back_if_nodes_share_under_the_plain_name():
    after = renamed(a_pod({keys.NVIDIA_GPU_SHARED: 1}), group())

    assert after["spec"]["containers"][0]["resources"]["limits"] == ONE


@pytest.mark.parametrize(
    ("limits", "texts"),
    [
        pytest.param(ONE, [], id="nothing-is-shared"),
        pytest.param({keys.NVIDIA_GPU_SHARED: 1}, [], id="no-node-has-the-name"),
        pytest.param(ONE, [group("{pool: a}", **RENAMED)], id="nodes-differ"),
        pytest.param({**ONE, keys.NVIDIA_GPU_SHARED: 1}, [group(**RENAMED)], id="both-names"),
        pytest.param({"cpu": 1}, [group(**RENAMED)], id="no-gpu"),
    ],
)
def test_request_is_not_renamed_if_the_name_is_uncertain(limits, texts):
    assert renamed(a_pod(limits), *texts) is None
