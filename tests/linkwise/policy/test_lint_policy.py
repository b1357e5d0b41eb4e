import pytest

from linkwise.cluster.finding import Code, Severity
from linkwise.policy.lint import lint_plugin_config, lint_policy

MACHINES = ("dgx1-v100", "dgx2")


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        (
            "machines:\n- {nodeLabels: {a: b}, machine: dgx1-v100}\n"
            "- {nodeLabels: {a: b, c: d}, machine: dgx2}\n",
            3,
            "machines[1]",
            "entry 0",
        ),
        (
            "machines:\n- nodeLabels: {a: b}\n  machine: dgx3\n",
            3,
            "machines[0].machine",
            "dgx3 is no machine of the catalogue: dgx1-v100, dgx2",
        ),
        (
            "sharing:\n  groups:\n  - config: {}\n  - config: {}\n",
            4,
            "sharing.groups[1]",
            "entry 0",
        ),
        (
            "sharing:\n  groups:\n  - {nodeLabels: {a: 'true'}, config: {}}\n"
            "  - {nodeLabels: {b: 'true'}, config: {}}\n",
            4,
            "sharing.groups[1]",
            "a node may have the labels of this entry and of entry 0",
        ),
        (
            "affinity: {nodeLabels: {model: {values: {H1: [h]}}}}",
            1,
            "affinity.nodeLabels.model.values.H1",
            "H1 is no GPU model",
        ),
        (
            "affinity: {nodeLabels: {driver: {values: {'1.2': [d]}}}}",
            1,
            "affinity.nodeLabels.driver.values[1.2]",
            "1.2 is no driver",
        ),
        (
            "affinity:\n  platform: acs\n  nodeLabels: {}\n",
            3,
            "affinity.nodeLabels",
            "not used on platform acs",
        ),
        ("placement: {schedulerName: mine}", 1, "placement.schedulerName", "behind gates"),
        (
            "autoscaling: {provisioningClass: queued.example.com}",
            1,
            "autoscaling.provisioningClass",
            "no ProvisioningRequest is created",
        ),
        ("sharing: {rename: true}", 1, "sharing.rename", "nothing is rewritten"),
        (
            "sharing:\n  groups:\n  - config:\n      sharing:\n        mps:\n          resources:\n"
            "          - name: nvidia.com/gpu\n            replicas: 2\n            devices: [0]\n",
            9,
            "sharing.groups[0].config.sharing.mps.resources[0].devices",
            "a subset of devices is ignored",
        ),
        (
            "sharing:\n  groups:\n  - config:\n      sharing:\n        mps:\n          resources:\n"
            "          - name: nvidia.com/gpuu\n            replicas: 2\n",
            7,
            "sharing.groups[0].config.sharing.mps.resources[0].name",
            "nvidia.com/gpuu is no resource of NVIDIA's plugin",
        ),
        (
            "sharing:\n  groups:\n  - config:\n      sharing:\n        timeSlicing:\n"
            "          resources:\n          - {name: nvidia.com/gpu, replicas: 2}\n"
            "          - {name: nvidia.com/mig-1g.5gb, replicas: 2}\n"
            "          - {name: gpu, replicas: 4}\n",
            9,
            "sharing.groups[0].config.sharing.timeSlicing.resources[2]",
            "nvidia.com/gpu is listed already, as entry 0",
        ),
        (
            "placement:\n  mode: scheduler\n  schedulerName: mine\n",
            3,
            "placement.schedulerName",
            "must stand in the manifests too, which name linkwise",
        ),
    ],
    ids=range(14),
)
def test_rule_without_effect_is_reported_with_its_line(text, line, path, message):
    [problem] = lint_policy(text, machines=MACHINES).problems

    assert (problem.line, problem.path) == (line, path)
    assert message in problem.message
    assert (problem.code, problem.severity) == (Code.POLICY, Severity.WARNING)


CLEAN = """\
affinity: {nodeLabels: {model: {values: {GN8IS: [v]}}, driver: {values: {535.161.08: [w]}}}}
placement: {mode: scheduler, schedulerName: linkwise}
machines:
- {nodeLabels: {a: b, c: d}, machine: dgx2}
- {nodeLabels: {a: b}, machine: dgx1-v100}
sharing:
  rename: true
  groups:
  - nodeLabels: {a: b}
    config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}}
  - config: {}
"""


def test_what_does_something_is_clean():
    assert lint_policy(CLEAN, machines=MACHINES).problems == ()


def test_machines_are_not_checked_without_a_catalogue():
    assert lint_policy("machines: [{nodeLabels: {a: b}, machine: any}]").problems == ()


def test_fields_that_the_device_plugin_ignores_are_reported():
    text = (
        "sharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 2\n"
        "      rename: mine\n      devices: [0]\n"
    )

    found = lint_plugin_config(text).problems

    assert [(problem.line, problem.path.rpartition(".")[2]) for problem in found] == [
        (6, "rename"),
        (7, "devices"),
    ]
