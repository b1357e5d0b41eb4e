"""The bill of materials of the image, as CycloneDX 1.6 in JSON.

It names what was installed: packages of Debian and wheels, each with the SHA-256 of its archive.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import ZipFile

Component = dict[str, Any]


def bill_of_materials(
    version: str, digest: str, debs: Iterable[Path], wheels: Iterable[Path]
) -> str:
    """Return the document.

    Args:
        version: Of Linkwise.
        digest: Of the image, as `sha256:...`.
        debs: The packages of Debian in the image.
        wheels: The Python packages in the image.
    """
    image = {
        "type": "container",
        "bom-ref": "image",
        "name": "linkwise",
        "version": version,
        "hashes": [_sha256(digest.removeprefix("sha256:"))],
        "licenses": [{"expression": "Apache-2.0"}],
    }
    components = [*map(_debian, sorted(debs)), *map(_python, sorted(wheels))]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": image},
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [each["bom-ref"] for each in components]}],
    }
    return json.dumps(document, indent=1) + "\n"


def _debian(path: Path) -> Component:
    argv = ("dpkg-deb", "--field", str(path))
    fields = _fields(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    name, version = fields["Package"], fields["Version"]
    address = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
    return _component(path, name, version, address)


def _python(path: Path) -> Component:
    with ZipFile(path) as wheel:
        [metadata] = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        fields = _fields(wheel.read(metadata).decode())
    name, version = fields["Name"], fields["Version"]
    component = _component(path, name, version, f"pkg:pypi/{_normal(name)}@{version}")
    if expression := fields["License-Expression"]:
        component["licenses"] = [{"expression": expression}]
    return component


def _component(path: Path, name: str, version: str, address: str) -> Component:
    return {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "purl": address,
        "hashes": [_sha256(hashlib.sha256(path.read_bytes()).hexdigest())],
    }


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


def _fields(text: str) -> Message:
    return HeaderParser().parsestr(text)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
