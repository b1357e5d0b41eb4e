"""Reads what the ResourceClaimTemplates among objects ask for."""

from collections.abc import Iterable, Mapping

from cluster.requests.templates.claim_spec import Asked, TemplateObject, asked_of
from cluster.requests.templates.device_class import CLASSES_OF_DRIVER, DeviceClass
from manifest.lines import without_nulls
from manifest.typed import read_as
from manifest.value import Value


def read_claim_templates(
    objects: Iterable[Value], namespace: str
) -> Mapping[tuple[str, str], Asked]:
    """Return what templates ask for, by namespace and name.

    The classes of NVIDIA's driver are as that installs them, unless the objects have others.

    Args:
        objects: Kubernetes objects.
        namespace: Of templates that name none.

    Raises:
        InputError: A template or class is no such object; one line for users.
    """
    classes = {**CLASSES_OF_DRIVER}
    templates: list[TemplateObject] = []
    for value in objects:
        kind = value.need("kind").plain
        if kind == "DeviceClass":
            found = read_as(DeviceClass, without_nulls(value.mapping()), value)
            classes[found.metadata.name] = found
        elif kind == "ResourceClaimTemplate":
            templates.append(read_as(TemplateObject, without_nulls(value.mapping()), value))
    return {
        (one.metadata.namespace or namespace, one.metadata.name): asked_of(one.claim_spec, classes)
        for one in templates
    }
