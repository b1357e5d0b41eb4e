import msgspec
import pytest
from support.builders import a_pod

from linkwise.admission.dry_run.others import HIGHEST_OF_USERS, as_of_users, asks_about_others
from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.whatif_api import FitRequest, FitTemplate


def asking(**spec):
    pod = msgspec.convert(a_pod({keys.GPU_WHOLE: 1}, name="a", **spec), Pod)
    return FitRequest([FitTemplate(pod, ["a"])])


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("where", "is_about_others"),
    [
        pytest.param({}, False, id="own by default"),
        pytest.param({"namespaces": ["team"]}, False, id="own"),
        pytest.param({"namespaces": ["team", "victim"]}, True, id="another"),
        pytest.param({"namespaceSelector": {}}, True, id="all"),
        pytest.param({"namespaceSelector": {"matchLabels": {"a": "b"}}}, True, id="selected"),
    ],
)
def test_rules_about_pods_of_other_namespaces_are_found(kind, where, is_about_others):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, **where}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    assert asks_about_others(asking(affinity={kind: rule}), "team") is is_about_others


@pytest.mark.parametrize(
    ("priority", "counted"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(-5, -5, id="low"),
        pytest.param(HIGHEST_OF_USERS, HIGHEST_OF_USERS, id="of users"),
        pytest.param(2_000_001_000, HIGHEST_OF_USERS, id="of Kubernetes"),
    ],
)
def test_no_priority_is_above_those_of_users(priority, counted):
    spec = {} if priority is None else {"priority": priority}

    (template,) = as_of_users(asking(**spec)).templates

    assert template.pod.spec.priority == counted
