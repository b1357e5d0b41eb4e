"""The Policy document. All fields have defaults."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from linkwise.cluster import keys
from linkwise.cluster.mode import PackingStrategy
from linkwise.manifest.lines import WHOLE, Document, Embedded, read_documents, without_nulls
from linkwise.manifest.place import SourceError, field
from linkwise.policy.catalogue_section import CatalogueSection, slips
from linkwise.policy.gangs_section import Gangs
from linkwise.policy.problem import PolicyError, Problem, check_length, outer
from linkwise.policy.sharing import PluginConfig, Sharing
from linkwise.policy.wire import (
    LabelKey,
    Labels,
    LabelValue,
    NonEmpty,
    Positive,
    Wire,
    overlong,
    read_value,
)

W = TypeVar("W", bound=Wire)
_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


class NodeLabel(Wire):
    """The node label that corresponds to a label of pods."""

    key: LabelKey
    values: dict[str, Annotated[tuple[LabelValue, ...], NonEmpty]] = Field(default_factory=dict)
    """Accepted node values by the value of the pod; a value without an entry maps to itself."""


class ModelLabel(NodeLabel):
    """The node label of the GPU model."""

    key: LabelKey = keys.MODEL_SERIES


class DriverLabel(NodeLabel):
    """The node label of the driver version."""

    key: LabelKey = keys.DRIVER_VERSION


class NodeLabels(Wire):
    """Node labels of model and driver."""

    model: ModelLabel = ModelLabel()
    driver: DriverLabel = DriverLabel()


class Affinity(Wire):
    """Translation of model and driver of a pod to requirements on nodes."""

    platform: Literal["node", "acs"] = "node"
    """`acs`: no requirements, since virtual nodes carry no such labels."""
    node_labels: NodeLabels = NodeLabels()


def _off(value: object) -> object:
    """Map false to `off`: YAML reads an unquoted `off` as false."""
    return "off" if value is False else value


def _asks_about_gpus(name: str, section: ValidationInfo) -> str:
    if name == keys.DEFAULT_SCHEDULER and section.data.get("mode") == "scheduler":
        raise ValueError(
            f"{name} does not ask which GPUs are free, so that no pod would be placed; "
            "remove it, or name the scheduler that runs beside the scorer"
        )
    return name


class PlacementSection(Wire):
    """Placement of pods and layout of shares."""

    mode: Literal["gates", "scheduler"] = "gates"
    """`gates` works with any scheduler; `scheduler` needs a second, stock one beside the scorer."""
    scheduler_name: Annotated[str, Field(min_length=1), AfterValidator(_asks_about_gpus)] = (
        keys.SCHEDULER
    )
    """Name of that second scheduler."""
    strategy: PackingStrategy = PackingStrategy.BINPACK
    """Default for nodes without the label."""
    nvidia: Annotated[Literal["auto", "count", "off"], BeforeValidator(_off)] = "auto"
    """Pods for GPUs under NVIDIA's names. `auto`: gangs are placed as a whole, also on nodes where
    NVIDIA's plugin chooses the GPUs, and single pods where a node of our modes offers them.
    `count`: single pods for nvidia.com/gpu, too, on all nodes. `off`: no pod is placed."""
    claims: Annotated[Literal["auto", "always", "off"], BeforeValidator(_off)] = "auto"
    """Pods for nvidia.com/gpu that Linkwise places by ResourceClaims, on nodes of NVIDIA's DRA
    driver. `auto`: those that match such a node, and no node where a device plugin offers as many
    GPUs. `always`: all. `off`: none. The label linkwise.dev/claims of a pod takes precedence."""
    templates: Annotated[Literal["auto", "off"], BeforeValidator(_off)] = "off"
    """Pods that get whole GPUs of NVIDIA's DRA driver by ResourceClaims of their own, or by
    ResourceClaimTemplates. `auto`: Linkwise allocates the claims of those that match a claims node.
    `off`: kube-scheduler does."""


class Autoscaling(Wire):
    """How units that wait for capacity ask an autoscaler for nodes."""

    request: Annotated[
        Literal["off", "provisioningRequest", "podCondition"], BeforeValidator(_off)
    ] = "off"
    """`provisioningRequest`: by an object of cluster-autoscaler's API; `podCondition`: their pods
    get the condition of pods that a scheduler found no node for."""
    provisioning_class: Annotated[str, Field(pattern=_DNS_NAME, max_length=253)] = (
        keys.BEST_EFFORT_ATOMIC
    )
    """Class of the ProvisioningRequests."""


class Containers(Wire):
    """How containers get what was chosen for them."""

    gpu_injection: Literal["agent", "nri", "runtimeClass"] = "agent"
    """`agent`: by the device plugin of the node agent; `nri`: by an annotation for the NRI plugin
    of NVIDIA's container toolkit; `runtimeClass`: by NVIDIA's runtime, from a variable."""


class ConstantsSection(Wire):
    """Measured link speeds per direction [GB/s], instead of the modelled ones."""

    nvlink: Positive | None = None
    """One NVLink."""
    pcie: Positive | None = None
    """A path below the host bridge."""
    bridge: Positive | None = None
    """A path through host bridges of one socket."""
    socket: Positive | None = None
    """A path between sockets."""


class MachineRule(Wire):
    """Machine of the nodes with these labels, unless an agent publishes one."""

    node_labels: Annotated[Labels, NonEmpty]
    machine: str
    """A name of the machine catalogue."""
    constants: ConstantsSection = ConstantsSection()
    """Take precedence over those for all machines."""


class Migration(Wire):
    """Migration from other systems."""

    gpushare: bool = False
    """Account for pods by annotations of gpushare and arena if they have none of ours."""


class Policy(Wire):
    """The document of `policy.yaml`."""

    api_version: Literal["linkwise.dev/v1alpha1"] = "linkwise.dev/v1alpha1"
    kind: Literal["Policy"] = "Policy"
    catalogue: CatalogueSection = CatalogueSection()
    strict: bool = True
    """Deny models and drivers that the catalogue does not know; else warn."""
    capacity: Annotated[Literal["warn", "deny", "off"], BeforeValidator(_off)] = "warn"
    """Reaction to a request that exceeds every node."""
    visible_devices: Literal["replace", "deny"] = "replace"
    """Reaction to NVIDIA_VISIBLE_DEVICES set by users."""
    environment: Literal["refuse", "replace", "allow"] = "replace"
    """Reaction to a variable or mount that would give a container GPUs beyond the request of its
    pod: NVIDIA_VISIBLE_DEVICES if Linkwise does not choose the GPUs, CGPU_DISABLE, variables of
    IMEX channels and MIG, and mounts that name devices."""
    profiles_all: bool = False
    """Profiles apply to every pod (with the overlay `profiles-all`); else only to pods with a GPU
    resource, an ACS label or a gang mark."""
    affinity: Affinity = Affinity()
    sharing: Sharing = Sharing()
    placement: PlacementSection = PlacementSection()
    containers: Containers = Containers()
    gangs: Gangs = Gangs()
    autoscaling: Autoscaling = Autoscaling()
    machines: tuple[MachineRule, ...] = ()
    """The first rule whose labels a node has applies."""
    constants: ConstantsSection = ConstantsSection()
    """For all machines."""
    migration: Migration = Migration()


def parse_policy(text: str, *, at: Embedded = WHOLE) -> Policy:
    """Parse a policy; a blank text gives the defaults.

    A key without a value (null) counts as absent.

    Args:
        text: One YAML or JSON document.
        at: Position of the text in a file.

    Raises:
        PolicyError: Has all problems.
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
    """Parse a configuration file of NVIDIA's device plugin.

    Args:
        text: One YAML or JSON document.
        at: Position of the text in a file.

    Raises:
        PolicyError: Has all problems.
    """
    document = one_document(text, at)
    return _read(PluginConfig, document, at) if document else PluginConfig()


def one_document(text: str, at: Embedded) -> Document | None:
    """Return the only document of a text; None if it is blank.

    Raises:
        PolicyError: The text is too long, not YAML or JSON, or has several documents.
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
