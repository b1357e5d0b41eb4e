"""Write the manifest of `kubectl linkwise` for krew, from the archives that `make zipapp` wrote.

`python -m tools.release.krew ADDRESS ARCHIVE...` prints it; ADDRESS is the folder of the downloads.
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

TEMPLATE = Path(__file__).with_name("krew.yaml")
_NAME = re.compile(r"linkwise-(?P<version>.+)-(?P<os>[a-z]+)-(?P<arch>[a-z0-9]+)\.tar\.gz")


def manifest(address: str, archives: Sequence[Path]) -> str:
    """Return the manifest.

    Args:
        address: Where the archives are downloaded from, without their names.
        archives: One for each platform, of one version.

    Raises:
        ValueError: There is no archive, or one has another name or version than the others.
    """
    document = yaml.safe_load(TEMPLATE.read_text())
    names = {path: _NAME.fullmatch(path.name) for path in archives}
    wrong = [path.name for path, name in names.items() if name is None]
    versions = {name["version"] for name in names.values() if name}
    if wrong or len(versions) != 1:
        raise ValueError(
            f"archives of one version are expected, as written by make zipapp: {wrong or versions}"
        )
    document["spec"]["version"] = f"v{versions.pop()}"
    document["spec"]["homepage"] = address
    document["spec"]["platforms"] = [
        {
            "selector": {"matchLabels": {"os": name["os"], "arch": name["arch"]}},
            "uri": f"{address}/{path.name}",
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "files": [{"from": each, "to": "."} for each in ("kubectl-linkwise", "LICENSE")],
            "bin": "kubectl-linkwise",
        }
        for path, name in names.items()
        if name
    ]
    return yaml.safe_dump(document, sort_keys=False)


if __name__ == "__main__":
    print(manifest(sys.argv[1].rstrip("/"), [Path(name) for name in sys.argv[2:]]), end="")
