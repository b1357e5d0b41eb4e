"""Warnings about valid policies: settings without effect, or probably unintended."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from linkwise.cluster.keys import BEST_EFFORT_ATOMIC, MIG_PREFIX, NVIDIA_GPU, SCHEDULER
from linkwise.manifest.place import Path
from linkwise.policy.catalogue_section import catalogue_of
from linkwise.policy.document import Policy
from linkwise.policy.sharing import PluginConfig, shared_by

LintWarning: TypeAlias = tuple[Path, str, str]
"""Path, message, fix."""


def policy_warnings(policy: Policy, machines: Collection[str] | None) -> Iterator[LintWarning]:
    """Yield warnings about a policy.

    Args:
        policy: A valid policy.
        machines: Names of the machine catalogue, if known.
    """
    groups = [group.node_labels for group in policy.sharing.groups]
    yield from _never_reached(("sharing", "groups"), groups)
    yield from _overlapping(groups)
    yield from _never_reached(("machines",), [rule.node_labels for rule in policy.machines])
    for i, group in enumerate(policy.sharing.groups):
        for path, message, fix in plugin_warnings(group.config):
            yield ("sharing", "groups", i, "config", *path), message, fix
    yield from _mapping_warnings(policy)
    yield from _idle(policy)
    yield from _named_elsewhere(policy)
    for i, rule in enumerate(policy.machines):
        if machines is not None and rule.machine not in machines:
            message = f"{rule.machine} is no machine of the catalogue: {', '.join(machines)}"
            yield ("machines", i, "machine"), message, "write one of the list"


def plugin_warnings(config: PluginConfig) -> Iterator[LintWarning]:
    """Yield settings that NVIDIA's plugin ignores, or interprets differently than Linkwise."""
    strategies = {"timeSlicing": config.sharing.time_slicing, "mps": config.sharing.mps}
    for name, strategy in strategies.items():
        first: dict[str, int] = {}
        for i, resource in enumerate(strategy.resources if strategy else ()):
            path = ("sharing", name, "resources", i)
            if (before := first.setdefault(resource.full_name, i)) != i:
                message = (
                    f"{resource.full_name} is listed already, as entry {before}: that one counts "
                    "here, and for NVIDIA's plugin the one with more replicas"
                )
                yield path, message, "keep one of them"
            if resource.full_name != NVIDIA_GPU and not resource.full_name.startswith(MIG_PREFIX):
                message = f"{resource.full_name} is no resource of NVIDIA's plugin"
                yield (*path, "name"), message, f"write {NVIDIA_GPU}"
            if resource.devices is not None:
                message = "a subset of devices is ignored: all GPUs of a node are shared alike"
                yield (*path, "devices"), message, "remove it"
            if resource.rename is not None:
                message = "a custom name is ignored: renamed resources end in .shared"
                yield (*path, "rename"), message, "remove it, or set renameByDefault"


def _never_reached(path: Path, rules: Sequence[Mapping[str, str]]) -> Iterator[LintWarning]:
    for i, labels in enumerate(rules):
        for j in range(i):
            if rules[j].items() <= labels.items():
                message = f"no node gets here: entry {j}, before it, fits each of its nodes"
                yield (*path, i), message, "put the narrower entry first"
                break


def _overlapping(groups: Sequence[Mapping[str, str]]) -> Iterator[LintWarning]:
    """Yield each group that may share nodes with an earlier group, by labels of other keys.

    Cost: all pairs of groups; under half a second for the longest permitted policy.
    """
    for i, labels in enumerate(groups):
        for j, before in enumerate(groups[:i]):
            wider = before.items() <= labels.items() or labels.items() <= before.items()
            shared_keys = before.keys() & labels.keys()
            if not wider and all(before[key] == labels[key] for key in shared_keys):
                message = (
                    f"a node may have the labels of this entry and of entry {j}, which then "
                    "counts: the nodes that exist decide which entry applies to a pod"
                )
                yield (
                    ("sharing", "groups", i),
                    message,
                    "give the groups different values of one label",
                )
                break


def _mapping_warnings(policy: Policy) -> Iterator[LintWarning]:
    catalogue, labels = catalogue_of(policy.catalogue), policy.affinity.node_labels
    at: Path = ("affinity", "nodeLabels")
    for model in labels.model.values:
        if catalogue.find(model) is None:
            message = f"{model} is no GPU model of the catalogue, so that no pod can ask for it"
            yield (*at, "model", "values", model), message, f"write one of {catalogue.titles}"
    known = catalogue.drivers(None)
    for driver in labels.driver.values:
        if driver not in known:
            message = f"{driver} is no driver of the catalogue, so that no pod can ask for it"
            yield (*at, "driver", "values", driver), message, f"write one of {', '.join(known)}"


def _idle(policy: Policy) -> Iterator[LintWarning]:
    affinity, placement, sharing = policy.affinity, policy.placement, policy.sharing
    if affinity.platform == "acs" and "node_labels" in affinity.model_fields_set:
        message = "node labels are not used on platform acs"
        yield ("affinity", "nodeLabels"), message, "remove them, or set platform to node"
    if placement.mode == "gates" and placement.scheduler_name != SCHEDULER:
        message = "no scheduler is named where pods wait behind gates"
        yield ("placement", "schedulerName"), message, "remove it, or set mode to scheduler"
    autoscaling = policy.autoscaling
    is_default = autoscaling.provisioning_class == BEST_EFFORT_ATOMIC
    if not is_default and autoscaling.request != "provisioningRequest":
        message = "no ProvisioningRequest is created"
        fix = "remove it, or set request to provisioningRequest"
        yield ("autoscaling", "provisioningClass"), message, fix
    devices = {shared.device for group in sharing.groups for shared in shared_by(group)}
    if sharing.rename and NVIDIA_GPU not in devices:
        message = f"no group shares {NVIDIA_GPU}, so that nothing is rewritten"
        yield ("sharing", "rename"), message, "add the group, or remove the key"


def _named_elsewhere(policy: Policy) -> Iterator[LintWarning]:
    placement = policy.placement
    if placement.mode == "scheduler" and placement.scheduler_name != SCHEDULER:
        name = placement.scheduler_name
        yield (
            ("placement", "schedulerName"),
            f"{name} must stand in the manifests too, which name {SCHEDULER}: else pods are "
            "refused, or wait for ever",
            f"see that {name} stands in the policy linkwise-placed, in the webhook "
            f"retry.pods.linkwise.dev and in the scheduler's configuration, or write {SCHEDULER}",
        )
