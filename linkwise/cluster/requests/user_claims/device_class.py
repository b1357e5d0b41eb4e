"""Read DeviceClasses and selectors: which GPUs of NVIDIA's driver they select."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from linkwise.cluster.cel.selection import selects
from linkwise.cluster.cel.syntax import SyntaxRefused, parse
from linkwise.cluster.cel.values import DeviceFacts, Failure
from linkwise.cluster.keys import DRA_GPU_DRIVER
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata

Body: TypeAlias = dict[str, object]

SELECTORS_MAX = 8
"""Different selectors of a claim."""
_TEXT_MAX = 4096
"""All selectors of a claim together [characters]: they are written into the pod."""
_CLASSES_MAX = 4
"""DeviceClasses of one claim that are read."""
_ANY_GPU = DeviceFacts(DRA_GPU_DRIVER, (("type", "gpu"),), is_partial=True)
"""What is certain of each whole GPU of the driver."""


class _CEL(KubeObject, frozen=True):
    expression: str = ""


class Selector(KubeObject, frozen=True):
    """A selector of a DeviceClass or of a request."""

    cel: _CEL | None = None

    @property
    def expression(self) -> str:
        """Its expression; empty: it is a selector of another kind."""
        return self.cel.expression if self.cel else ""


class _ClassSpec(KubeObject, frozen=True):
    selectors: list[Selector] | None = None
    config: list[Body] | None = None
    extended_resource_name: str | None = None


class DeviceClass(KubeObject, frozen=True):
    """The fields of a DeviceClass that are read."""

    metadata: Metadata = Metadata()
    spec: _ClassSpec = _ClassSpec()

    @property
    def extended_resource_name(self) -> str | None:
        """The extended resource that pods may request instead of a claim; None: there is none."""
        return self.spec.extended_resource_name

    @property
    def is_of_driver(self) -> bool:
        """It may select devices of NVIDIA's driver: an expression names it."""
        return any(DRA_GPU_DRIVER in text for text in self.expressions)

    @property
    def expressions(self) -> list[str]:
        """Those of its selectors."""
        return [one.expression for one in self.spec.selectors or ()]


def _class_of(kind: str) -> DeviceClass:
    """Return the class of all devices of NVIDIA's driver of one type."""
    expression = (
        f"device.driver == '{DRA_GPU_DRIVER}' && "
        f"device.attributes['{DRA_GPU_DRIVER}'].type == '{kind}'"
    )
    return DeviceClass(spec=_ClassSpec(selectors=[Selector(cel=_CEL(expression=expression))]))


CLASSES_OF_DRIVER: Mapping[str, DeviceClass] = {
    DRA_GPU_DRIVER: _class_of("gpu"),
    "mig.nvidia.com": _class_of("mig"),
    f"vfio.{DRA_GPU_DRIVER}": _class_of("vfio"),
}
"""The classes of whole GPUs, MIG devices and GPUs for VMs, as NVIDIA's driver installs them."""


def selectors_of(expressions: Iterable[str]) -> tuple[str, ...] | str:
    """Return the expressions that not every whole GPU of the driver satisfies, in their order.

    Returns:
        Why they are not evaluated, for users: a phrase.
    """
    kept: dict[str, None] = {}
    for text in expressions:
        tree = parse(text)
        if isinstance(tree, SyntaxRefused):
            return f"a selector that is not evaluated: {tree}"
        match selects((text,), _ANY_GPU):
            case False:
                return "a selector of devices that are no whole GPUs"
            case Failure():
                kept[text] = None
            case True:
                pass
    if len(kept) > SELECTORS_MAX or sum(map(len, kept)) > _TEXT_MAX:
        return f"more than {SELECTORS_MAX} selectors, or {_TEXT_MAX} characters of them"
    return tuple(kept)


def classes_to_read(spec: Mapping[str, object]) -> list[str]:
    """Return the DeviceClasses that a claim names; of more than 4, the first ones by name."""
    return sorted(frozenset(class_names(spec)))[:_CLASSES_MAX]


def class_names(spec: Mapping[str, object]) -> Iterator[str]:
    """Yield the DeviceClasses that the requests of a claim name, whatever else it has."""
    devices = spec.get("devices")
    for request in _bodies(devices.get("requests") if isinstance(devices, dict) else None):
        for part in (request.get("exactly"), *_bodies(request.get("firstAvailable"))):
            name = part.get("deviceClassName") if isinstance(part, dict) else None
            if isinstance(name, str):
                yield name


def _bodies(part: object) -> list[Body]:
    return [one for one in part if isinstance(one, dict)] if isinstance(part, list) else []
