import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.mode import PackingStrategy
from linkwise.manifest.lines import Embedded
from linkwise.policy.document import Policy, parse_plugin_config, parse_policy
from linkwise.policy.gangs_section import Preemption
from linkwise.policy.problem import PolicyError

FULL = """\
apiVersion: linkwise.dev/v1alpha1
kind: Policy
catalogue:
  models:
    H20: {memory: 96, counts: [1, 8], drivers: ["1.0", "2.0"], default: "2.0", aliases: [G20]}
strict: false
capacity: deny
visibleDevices: deny
environment: refuse
profilesAll: true
affinity:
  platform: node
  nodeLabels:
    model: {key: nvidia.com/gpu.product, values: {T4: [Tesla-T4, Tesla-T4-SHARED]}}
    driver: {key: nvidia.com/cuda.driver-version.full}
sharing:
  rename: true
  memoryFraction: 0.8
  computeByMps: true
  groups:
  - nodeLabels: {pool: shared}
    config:
      version: v1
      flags: {migStrategy: none}
      sharing:
        timeSlicing:
          renameByDefault: true
          resources:
          - {name: nvidia.com/gpu, replicas: 4}
placement: {mode: scheduler, schedulerName: second, strategy: spread}
gangs:
  commitDeadlineSeconds: 90
  ageingMinutes: 0
  preemption: {mode: never, minRunMinutes: 0, afterSeconds: 30, others: lowerPriority}
  nonPreemptingClasses: {high: high-waits}
  domains: [rack]
containers: {gpuInjection: nri}
machines:
- {nodeLabels: {pool: a}, machine: dgx1-v100, constants: {nvlink: 21}}
constants: {pcie: 11.5}
migration: {gpushare: yes}
"""


def problems(text):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    return caught.value.problems


@pytest.mark.parametrize("text", ["", "# nothing decided\n", "{}", "catalogue:\nsharing: {}\n"])
def test_an_empty_policy_has_its_defaults(text):
    policy = parse_policy(text)

    assert policy == Policy()
    assert (policy.strict, policy.capacity, policy.visible_devices) == (True, "warn", "replace")
    assert policy.environment == "replace"
    assert (policy.placement.mode, policy.placement.strategy) == ("gates", PackingStrategy.BINPACK)
    assert (policy.gangs.commit_deadline_seconds, policy.gangs.ageing_minutes) == (60, 10)
    preemption = policy.gangs.preemption
    assert (preemption.mode, preemption.min_run_minutes, preemption.after_seconds) == (
        "lowerPriority",
        5,
        0,
    )
    assert (policy.sharing.memory_fraction, policy.sharing.compute_by_mps) == (0.9, False)
    assert policy.affinity.node_labels.model.key == keys.MODEL_SERIES
    assert policy.affinity.node_labels.driver.key == keys.DRIVER_VERSION
    assert not policy.migration.gpushare
    assert not policy.profiles_all


def test_policy_with_all_fields_is_read():
    policy = parse_policy(FULL)

    assert policy.catalogue.models["H20"].drivers == ("1.0", "2.0")
    assert (policy.strict, policy.capacity, policy.visible_devices) == (False, "deny", "deny")
    assert policy.environment == "refuse"
    assert policy.affinity.node_labels.model.values == {"T4": ("Tesla-T4", "Tesla-T4-SHARED")}
    assert policy.placement.strategy is PackingStrategy.SPREAD
    assert policy.gangs.domains == ("rack",)
    assert policy.gangs.preemption == Preemption(
        mode="never", min_run_minutes=0, after_seconds=30, others="lowerPriority"
    )
    assert (policy.machines[0].machine, policy.machines[0].constants.nvlink) == ("dgx1-v100", 21)
    assert policy.constants.pcie == 11.5
    assert policy.migration.gpushare
    assert policy.profiles_all


def test_json_says_the_same_as_yaml():
    policy = parse_policy(FULL)

    assert parse_policy(policy.model_dump_json(by_alias=True)) == policy


def test_a_policy_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Policy().strict = False


@pytest.mark.parametrize(
    ("text", "line", "path", "message", "fix"),
    [
        ("kind: Policy\nstrickt: yes\n", 2, "strickt", "unknown key 'strickt'", "write strict"),
        (
            "gangs:\n  deadline: 1\n",
            2,
            "gangs.deadline",
            "unknown key 'deadline'",
            "known keys here: ageingMinutes, commitDeadlineSeconds, domains, kinds",
        ),
        (
            "machines:\n- machine: x\n  nodelabels: {a: b}\n  nodeLabels: {a: b}\n",
            3,
            "machines[0].nodelabels",
            "unknown key 'nodelabels'",
            "write nodeLabels",
        ),
        (
            "catalogue:\n  models:\n    A1:\n      driver: [a]\n",
            4,
            "catalogue.models.A1.driver",
            "unknown key 'driver'",
            "write drivers",
        ),
        (
            'strict: "yes"',
            1,
            "strict",
            "must be a valid boolean",
            "write true or false, without quotes",
        ),
        (
            "capacity: never",
            1,
            "capacity",
            "must be 'warn', 'deny' or 'off'",
            "write one of these words",
        ),
        (
            "catalogue: {models: {A1: {drivers: [580.95]}}}",
            1,
            "catalogue.models.A1.drivers[0]",
            "must be a valid string",
            "put it in quotes",
        ),
        (
            "gangs: {ageingMinutes: 1.5}",
            1,
            "gangs.ageingMinutes",
            "must be a valid integer",
            "write a whole number, without quotes",
        ),
        (
            "gangs: {commitDeadlineSeconds: 0}",
            1,
            "gangs.commitDeadlineSeconds",
            "must be greater than 0",
            "write a larger number",
        ),
        (
            "gangs:\n  preemption: {mode: always}",
            2,
            "gangs.preemption.mode",
            "must be 'lowerPriority' or 'never'",
            "write one of these words",
        ),
        (
            "gangs: {preemption: {minRunMinutes: -1}}",
            1,
            "gangs.preemption.minRunMinutes",
            "must be greater than or equal to 0",
            "write a larger number",
        ),
        (
            "gangs:\n  nonPreemptingClasses: {a: b, b: c}",
            2,
            "gangs.nonPreemptingClasses",
            "b is itself replaced",
            "name a class that stays",
        ),
        ("gangs: 5", 1, "gangs", "must be an object", "write a mapping"),
        ("machines: {}", 1, "machines", "must be a valid array", "write a list"),
        (
            "machines:\n- nodeLabels: {a: b}",
            2,
            "machines[0].machine",
            "machine is missing",
            "add it",
        ),
        (
            "machines:\n- machine: x\n  nodeLabels: {}",
            3,
            "machines[0].nodeLabels",
            "nothing is listed",
            "add an entry, or remove the key",
        ),
        (
            "catalogue:\n  models:\n    T4: {default: '9'}",
            3,
            "catalogue.models.T4.default",
            "9 is none of the model's drivers: 580.95.05-open, 570.133.20, 535.161.08, 525.105.17",
            "add it to drivers, or write one of them",
        ),
        (
            "catalogue:\n  models:\n    GN8IS: {}",
            3,
            "catalogue.models.GN8IS",
            "GN8IS is another name of L20",
            "write L20",
        ),
        (
            "catalogue:\n  models:\n    A1:\n      aliases: [T4]",
            3,
            "catalogue.models.A1",
            "T4 is a name of both T4 and A1",
            "rename one",
        ),
        (
            "catalogue:\n  models:\n    T4:\n      aliases: [A10]",
            3,
            "catalogue.models.T4",
            "A10 is a name of both T4 and A10",
            "rename one",
        ),
        ("[]", 1, "", "must be an object", "write a mapping"),
        ("a: [", 2, "", "not YAML", "write it as YAML"),
        ("strict: true\nstrict: false", 2, "", "stands already on line 1", "write it as YAML"),
        ("strict: true\n---\nkind: Policy", 3, "", "only one document is read", "keep one"),
        ("constants: {nvlink: -1}", 1, "constants.nvlink", "must be greater", "write a larger"),
        (
            "sharing: {memoryFraction: 2}",
            1,
            "sharing.memoryFraction",
            "less than or equal",
            "write a smaller number",
        ),
        ("gangs: {domains: [a b]}", 1, "gangs.domains[0]", "the name in key 'a b'", "correct it"),
        (
            "sharing: {groups: [{config: {}, nodeLabels: {a: b c}}]}",
            1,
            "sharing.groups[0].nodeLabels.a",
            "value 'b c' must be empty",
            "correct it",
        ),
        (
            "sharing: {groups: [{config: {}, nodeLabels: {/a: b}}]}",
            1,
            "sharing.groups[0].nodeLabels[/a]",
            "the prefix of key '/a'",
            "correct it",
        ),
        (
            "placement:\n  mode: scheduler\n  schedulerName: default-scheduler\n",
            3,
            "placement.schedulerName",
            "default-scheduler does not ask which GPUs are free, so that no pod would be placed",
            "remove it, or name the scheduler that runs beside the scorer",
        ),
    ],
    ids=range(30),
)
def test_problem_has_line_path_and_fix(text, line, path, message, fix):
    [problem] = problems(text)

    assert (problem.line, problem.path) == (line, path)
    assert message in problem.message
    assert problem.fix.startswith(fix)
    assert (problem.code, problem.severity) == (Code.POLICY, Severity.ERROR)


def test_unused_scheduler_may_have_any_name():
    policy = parse_policy("placement: {mode: gates, schedulerName: default-scheduler}")

    assert policy.placement.mode == "gates"


def test_off_needs_no_quotes():
    assert parse_policy("capacity: off\n") == parse_policy('capacity: "off"\n')


def test_all_problems_come_at_once_by_line():
    found = problems("stric: 1\ncapacity: 5\ngangs:\n  x: 1\n  ageingMinutes: -1\n")

    assert [problem.line for problem in found] == [1, 2, 4, 5]


def test_lines_of_a_policy_in_a_file_are_lines_of_the_file():
    with pytest.raises(PolicyError, match=r"line 21: gangs\.x: unknown key 'x'"):
        parse_policy("gangs:\n  x: 1\n", at=Embedded(20))


@pytest.mark.parametrize(
    ("sharing", "path", "message"),
    [
        (
            "timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}",
            "timeSlicing.resources[0].replicas",
            "greater than or equal to 2",
        ),
        ("timeSlicing: {resources: []}", "timeSlicing.resources", "nothing is listed"),
        ("mps: {}", "mps.resources", "resources is missing"),
        (
            "{timeSlicing: &x {resources: [{name: gpu, replicas: 2}]}, mps: *x}",
            "",
            "timeSlicing and mps exclude each other",
        ),
        ("timeslicing: {}", "timeslicing", "unknown key"),
    ],
    ids=["one replica", "no resources", "resources missing", "both strategies", "spelling"],
)
def test_what_the_device_plugin_refuses_is_refused(sharing, path, message):
    indented = f"sharing:\n  {sharing}\n"
    with pytest.raises(PolicyError) as bare:
        parse_plugin_config(indented)
    grouped = "sharing:\n  groups:\n  - config:\n      sharing:\n        " + sharing
    in_policy = problems(grouped)

    dotted = f".{path}" if path else ""
    for [problem], prefix in ((bare.value.problems, ""), (in_policy, "sharing.groups[0].config.")):
        assert problem.path == f"{prefix}sharing{dotted}"
        assert message in problem.message


def test_a_blank_plugin_file_shares_nothing():
    assert parse_plugin_config("").sharing.time_slicing is None


POLICYISH = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(("T4", "a b", "gates", "")),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from((*(field.alias for field in Policy.model_fields.values()), "x", "key")),
            inner,
            max_size=3,
        )
    ),
)


@given(st.text() | POLICYISH.map(json.dumps))
def test_any_text_gives_a_policy_or_problems(text):
    try:
        found = [parse_policy(text)]
    except PolicyError as error:
        found = error.problems

    assert found
