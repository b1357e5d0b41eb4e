"""Objects of the chart or of kustomizations, to be compared."""

from collections.abc import Iterable

import yaml
from controlplane.api import Object
from controlplane.chart import OF_A_RELEASE, rendered

Identity = tuple[str, str | None, str]


def documents(helm: str, *options: str) -> list[Object]:
    """Return the objects that the chart renders, in no order."""
    return [yaml.safe_load(text) for each in rendered(helm, *options).values() for text in each]


def by_identity(objects: Iterable[Object]) -> dict[Identity, object]:
    """Return what objects mean, by kind, namespace and name.

    Raises:
        ValueError: Two have one name.
    """
    listed = list(objects)
    found = {
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): normalized(one)
        for one in listed
    }
    if len(found) != len(listed):
        raise ValueError("two objects have one name")
    return found


def normalized(value: object, key: str = "") -> object:
    """Return a value without what patches and writers of YAML change, though it means the same.

    These are the order of named items, the text of our policy, white space in CEL, and labels of a
    release.
    """
    if isinstance(value, dict):
        left = OF_A_RELEASE if key == "labels" else ()
        return {name: normalized(item, name) for name, item in value.items() if name not in left}
    if isinstance(value, list):
        names = [item.get("name") if isinstance(item, dict) else None for item in value]
        if value and None not in names and len(set(names)) == len(names):
            return dict(zip(names, map(normalized, value), strict=True))
        return [normalized(item) for item in value]
    if key == "policy.yaml":
        return yaml.safe_load(str(value))
    return " ".join(str(value).split()) if key == "expression" else value
