"""JSON Schemas of the API objects of several Kubernetes versions, for kubeconform.

They are made from the types in the modules of Kubernetes' Go clients, which are small. These types
have each field with its type, but not which fields are required or what a text may contain.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from controlplane.binaries import HERE, source_of

Schema = dict[str, Any]

VERSIONS = tuple(f"1.{minor}.0" for minor in range(34, 38))
_MODULES = {
    "k8s.io/client-go": "applyconfigurations/internal/internal.go",
    "k8s.io/apiextensions-apiserver": "pkg/client/applyconfiguration/internal/internal.go",
}
_TYPES = re.compile(r"schemaYAML = typed\.YAMLObject\(`(.*?)`\)", re.DOTALL)
_KIND = re.compile(r"io\.k8s\.(?:api|apiextensions-apiserver\.pkg\.apis)\.(\w+)\.(v\w+)\.(\w+)")
_ALL = "types.json"
_SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "numeric": {"type": "number"},
    "untyped": {},
}
LOCATION = "{{ .NormalizedKubernetesVersion }}/{{ .ResourceKind }}{{ .KindSuffix }}.json"
"""Of a schema below the folder, as kubeconform's `-schema-location` has it."""


def write_schemas(folder: Path) -> None:
    """Write the schemas of all versions; those that are there stay."""
    for version in VERSIONS:
        path = folder / f"v{version}"
        if not (path / _ALL).exists():
            path.mkdir(parents=True, exist_ok=True)
            _write(path, {item["name"]: item for item in _types(f"v0{version[1:]}")})


def _write(folder: Path, types: Mapping[str, Schema]) -> None:
    for name, item in types.items():
        fields = {field["name"] for field in item.get("map", {}).get("fields", ())}
        found = _KIND.fullmatch(name)
        if found and {"apiVersion", "kind", "metadata"} <= fields:
            group, version, kind = found.groups()
            suffix = version if group == "core" else f"{group}-{version}"
            required = {"required": ["apiVersion", "kind", "metadata"]}
            schema = {"allOf": [{"$ref": f"{_ALL}#/definitions/{name}"}], **required}
            (folder / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(schema))
    definitions = {name: _schema(item, local="#/definitions/") for name, item in types.items()}
    (folder / _ALL).write_text(json.dumps({"definitions": definitions}))


def _schema(item: Schema, local: str) -> Schema:
    """Return the JSON Schema of a type."""
    if "namedType" in item:
        return {"$ref": f"{local}{item['namedType']}"}
    if "scalar" in item:
        return _SCALARS[item["scalar"]]
    if "list" in item:
        return {"type": "array", "items": _schema(item["list"]["elementType"], local)}
    fields = item["map"].get("fields", ())
    others = item["map"].get("elementType")
    return {
        "type": "object",
        "properties": {field["name"]: _schema(field["type"], local) for field in fields},
        "additionalProperties": _schema(others, local) if others else not fields,
    }


def _types(version: str) -> Iterator[Schema]:
    """Yield the types of a version of Kubernetes' clients."""
    for module, path in _MODULES.items():
        folder = source_of(HERE, f"{module}@{version}", print)
        if found := _TYPES.search((folder / path).read_text(encoding="utf-8")):
            yield from yaml.load(found[1], Loader=yaml.CSafeLoader)["types"] or ()
