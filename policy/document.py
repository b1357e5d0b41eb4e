"""The Policy: what an administrator decides, beside profiles. An empty one works."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from cluster import keys
from cluster.mode import Placement
from manifest.lines import WHOLE, Document, Embedded, read_documents, without_nulls
from manifest.place import SourceError, field
from policy.catalogue_section import CatalogueSection, slips
from policy.problem import PolicyError, Problem, check_length, outer
from policy.sharing import PluginConfig, Sharing
from policy.wire import LabelKey, Labels, LabelValue, NonEmpty, Wire, overlong, read_value

__all__ = ["Policy", "PolicyError", "parse_policy"]

W = TypeVar("W", bound=Wire)
ClassName = Annotated[str, Field(min_length=1, max_length=253)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NodeLabel(Wire):
    """The node label that tells what a pod's label asks for."""

    key: LabelKey
    values: dict[str, Annotated[tuple[LabelValue, ...], NonEmpty]] = Field(default_factory=dict)
    """Values that a node may have, by the pod's value; one that is not named stands for itself."""


class ModelLabel(NodeLabel):
    """The node label that tells a GPU model."""

    key: LabelKey = keys.MODEL_SERIES


class DriverLabel(NodeLabel):
    """The node label that tells a driver version."""

    key: LabelKey = keys.DRIVER_VERSION


class NodeLabels(Wire):
    """Which node labels tell model and driver."""

    model: ModelLabel = ModelLabel()
    driver: DriverLabel = DriverLabel()


class Affinity(Wire):
    """How model and driver of a pod become requirements on nodes."""

    platform: Literal["node", "acs"] = "node"
    """`acs`: no requirements, since virtual nodes carry no such labels."""
    node_labels: NodeLabels = NodeLabels()


def _off(value: object) -> object:
    """Return what was written: YAML reads `off` without quotes as false."""
    return "off" if value is False else value


def _asks_about_gpus(name: str, section: ValidationInfo) -> str:
    if name == keys.DEFAULT_SCHEDULER and section.data.get("mode") == "scheduler":
        raise ValueError(
            f"{name} does not ask which GPUs are free, so that no pod would be placed; "
            "remove it, or name the scheduler that runs beside the scorer"
        )
    return name


class PlacementSection(Wire):
    """How pods wait for their GPUs, and which GPUs are preferred."""

    mode: Literal["gates", "scheduler"] = "gates"
    """`gates` needs nothing of the cluster's scheduler; `scheduler` a second, stock one."""
    scheduler_name: Annotated[str, Field(min_length=1), AfterValidator(_asks_about_gpus)] = (
        keys.SCHEDULER
    )
    """Name of that second scheduler."""
    strategy: Placement = Placement.BINPACK
    """Where a node's label does not say."""
    nvidia: Annotated[Literal["auto", "off"], BeforeValidator(_off)] = "auto"
    """Whether Linkwise chooses GPUs under NVIDIA's resource names: `auto` where a node of our modes
    offers them, `off` never."""


def _one_step(classes: dict[str, str]) -> dict[str, str]:
    # Else a pod that is admitted a second time would change again.
    for name in classes.values():
        if name in classes:
            raise ValueError(f"{name} is itself replaced; name a class that stays")
    return classes


class Gangs(Wire):
    """How gangs are planned."""

    commit_deadline_seconds: Annotated[int, Field(gt=0)] = 60
    """After this, a gang of which a member cannot be bound is planned again."""
    ageing_minutes: Annotated[int, Field(ge=0)] = 10
    """After this, nobody whom the planner places passes one that waits any more."""
    non_preempting_classes: Annotated[dict[ClassName, ClassName], AfterValidator(_one_step)] = (
        Field(default_factory=dict)
    )
    """Priority classes of held pods, by the class that they name: of the same value, but with
    `preemptionPolicy: Never`, so that a pinned pod does not make the scheduler evict others."""
    domains: tuple[LabelKey, ...] = (keys.GFD_CLIQUE, keys.RACK, keys.ASW_ID)
    """Node labels of the network's levels, the nearest first."""


class ConstantsSection(Wire):
    """Measured speeds of links, per direction [GB/s], in place of the modelled ones."""

    nvlink: Positive | None = None
    """One NVLink."""
    pcie: Positive | None = None
    """A path below the host bridge."""
    bridge: Positive | None = None
    """A path through host bridges of one socket."""
    socket: Positive | None = None
    """A path between sockets."""


class MachineRule(Wire):
    """What machine the nodes with these labels are, where no agent tells."""

    node_labels: Annotated[Labels, NonEmpty]
    machine: str
    """A name of the machine catalogue."""
    constants: ConstantsSection = ConstantsSection()
    """Come before those for all machines."""


class Migration(Wire):
    """What is read of the systems before."""

    gpushare: bool = False
    """Account pods by gpushare's and arena's annotations where ours are missing."""


class Policy(Wire):
    """The document of `policy.yaml`."""

    api_version: Literal["linkwise.dev/v1alpha1"] = "linkwise.dev/v1alpha1"
    kind: Literal["Policy"] = "Policy"
    catalogue: CatalogueSection = CatalogueSection()
    strict: bool = True
    """What the catalogue does not know is denied; else warned of."""
    capacity: Annotated[Literal["warn", "deny", "off"], BeforeValidator(_off)] = "warn"
    """What happens to a request above what any node offers."""
    visible_devices: Literal["replace", "deny"] = "replace"
    """What happens to a user's own NVIDIA_VISIBLE_DEVICES."""
    environment: Literal["refuse", "replace", "allow"] = "replace"
    """What happens to a variable that would give a container GPUs that its pod does not ask for, or
    more of one: NVIDIA_VISIBLE_DEVICES where Linkwise does not choose the GPUs, CGPU_DISABLE."""
    profiles_all: bool = False
    """Profiles are for every pod, as where the overlay `profiles-all` is installed; else only for
    pods with a GPU resource, an ACS label or a gang mark."""
    affinity: Affinity = Affinity()
    sharing: Sharing = Sharing()
    placement: PlacementSection = PlacementSection()
    gangs: Gangs = Gangs()
    machines: tuple[MachineRule, ...] = ()
    """A node is what the first rule says whose labels it has."""
    constants: ConstantsSection = ConstantsSection()
    """For all machines."""
    migration: Migration = Migration()


def parse_policy(text: str, *, at: Embedded = WHOLE) -> Policy:
    """Return the policy that a text describes; a blank one decides nothing.

    A key with no value (null) is as good as absent.

    Args:
        text: One YAML or JSON document.
        at: Where the text stands, when it is a part of a file.

    Raises:
        PolicyError: With everything that is wrong.
    """
    document = one_document(text, at)
    if document is None:
        return Policy()
    policy = _read(Policy, document, at)
    problems = [
        Problem(document.line_of(path), field(path), message, fix)
        for inner, message, fix in slips(policy.catalogue)
        for path in [("catalogue", "models", *inner)]
    ]
    if problems:
        raise PolicyError(outer(problems, at))
    return policy


def parse_plugin_config(text: str, *, at: Embedded = WHOLE) -> PluginConfig:
    """Return what a file of NVIDIA's device plugin says.

    Args:
        text: One YAML or JSON document.
        at: Where the text stands, when it is a part of a file.

    Raises:
        PolicyError: With everything that is wrong.
    """
    document = one_document(text, at)
    return _read(PluginConfig, document, at) if document else PluginConfig()


def one_document(text: str, at: Embedded) -> Document | None:
    """Return the only document of a text; None for a blank one.

    Raises:
        PolicyError: The text is too long, is no YAML or JSON, or holds several documents.
    """
    check_length(text, at)
    try:
        documents = read_documents(text)
    except SourceError as error:
        problem = Problem(error.line, "", error.message, "write it as YAML")
        raise PolicyError(outer([problem], at)) from None
    if len(documents) > 1:
        fix = "keep one, or put each into a ConfigMap of its own"
        problem = Problem(documents[1].line, "", "only one document is read", fix)
        raise PolicyError(outer([problem], at))
    return documents[0] if documents else None


def _read(kind: type[W], document: Document, at: Embedded) -> W:
    value = without_nulls(document.value)
    if too_long := list(overlong(value, document.place)):
        raise PolicyError(outer(too_long, at))
    read, problems = read_value(kind, value, document.place)
    if read is None:
        raise PolicyError(outer(problems, at))
    return read
