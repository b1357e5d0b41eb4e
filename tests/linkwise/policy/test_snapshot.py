import pytest

from linkwise.policy.catalogue import SHIPPED
from linkwise.policy.document import Policy, parse_policy
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot


def snapshot(text):
    return PolicySnapshot(parse_policy(text))


def test_a_snapshot_of_nothing_has_the_defaults():
    nothing = PolicySnapshot()

    assert (nothing.policy, nothing.profiles.selectors, nothing.shared) == (Policy(), (), ())
    assert nothing.catalogue == SHIPPED
    assert nothing.machine_for({"a": "b"}) is None


def test_digest_depends_on_decisions_not_on_layout_or_generation():
    one = PolicySnapshot(parse_policy("strict: false\ncapacity: deny"), generation=1)
    same = PolicySnapshot(parse_policy('{"capacity": "deny", "strict": false}'), generation=2)
    profiled = PolicySnapshot(one.policy, parse_profiles('[{"name": "a"}]'), generation=1)

    assert one.digest == same.digest
    assert len({one.digest, profiled.digest, PolicySnapshot().digest}) == 3


MACHINES = """\
constants: {nvlink: 19, pcie: 11}
machines:
- {nodeLabels: {pool: a, zone: z}, machine: dgx2}
- {nodeLabels: {pool: a}, machine: dgx1-v100, constants: {nvlink: 21.5}}
"""


@pytest.mark.parametrize(
    ("labels", "machine", "nvlink"),
    [
        ({"pool": "a", "zone": "z"}, "dgx2", 19),
        ({"pool": "a"}, "dgx1-v100", 21.5),
        ({"pool": "b"}, None, 19),
    ],
)
def test_a_node_is_the_machine_of_the_first_rule_that_fits(labels, machine, nvlink):
    policy = snapshot(MACHINES)

    constants = policy.constants_for(labels)

    assert policy.machine_for(labels) == machine
    assert (constants.nvlink, constants.pcie, constants.bridge) == (nvlink, 11, None)


MAPPING = """\
affinity:
  nodeLabels:
    model: {key: nvidia.com/gpu.product, values: {T4: [Tesla-T4, Tesla-T4-SHARED], L20: [L20-P]}}
"""


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ("T4", ("Tesla-T4", "Tesla-T4-SHARED")),
        ("GN8IS", ("L20-P",)),
        ("A10", ("A10",)),
        ("unheard-of", ("unheard-of",)),
    ],
    ids=["mapped", "mapped under its other name", "not mapped", "unknown"],
)
def test_a_model_is_sought_by_the_values_of_its_mapping(value, values):
    policy = snapshot(MAPPING)

    assert policy.node_values(policy.policy.affinity.node_labels.model, value) == values


CATALOGUE = """\
catalogue:
  models:
    T4: {counts: [1], drivers: ["1", "2"]}
    A10: {drivers: [550.90.07], memory: 25, aliases: [A10G]}
    H20: {memory: 96, default: "7", drivers: ["7"]}
"""


def test_a_policys_models_extend_and_change_those_shipped():
    catalogue = snapshot(CATALOGUE).catalogue

    t4, a10, h20 = (catalogue.find(name) for name in ("T4", "A10G", "H20"))
    assert (t4.memory, t4.counts, t4.drivers, t4.default) == (16, (1,), ("1", "2"), None)
    assert (a10.name, a10.memory, a10.default) == ("A10", 25, "550.90.07")
    assert (h20.memory, h20.counts, h20.default) == (96, (), "7")
    assert catalogue.find("GN8IS") == SHIPPED.find("L20")


def test_a_policys_models_may_replace_those_shipped():
    catalogue = snapshot("catalogue: {replace: true, models: {T4: {memory: 16}}}").catalogue

    assert [(model.title, model.drivers) for model in catalogue.models] == [("T4", ())]
