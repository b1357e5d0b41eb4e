"""One image for several processors: an index of the archives that `make image` wrote on each.

`python -m tools.release.index DESTINATION ARCHIVE...` pushes the images and their index, and prints
its digest. DESTINATION is one of buildah: `docker://REGISTRY/linkwise:0.1.0`, or `oci:FOLDER` to
look at what would be pushed. It needs buildah.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

_NAME = "localhost/linkwise-index"


def push_index(destination: str, archives: Sequence[Path]) -> str:
    """Push the images of archives and an index of them.

    Args:
        destination: Where to, as buildah names it.
        archives: OCI archives with one image each, of one version, for different processors.

    Returns:
        The digest of the index, by which a release names the image.

    Raises:
        subprocess.CalledProcessError: buildah failed; it wrote why.
    """
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        digest = work / "digest"

        def buildah(*words: str) -> None:
            # A storage of its own, which leaves nothing on this machine.
            storage = f"--root={work / 'storage'}", f"--runroot={work / 'run'}"
            argv = ("buildah", "--storage-driver=vfs", *storage, "manifest", *words)
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

        buildah("create", _NAME)
        for archive in archives:
            buildah("add", _NAME, f"oci-archive:{archive}")
        buildah("push", "--all", "--quiet", f"--digestfile={digest}", _NAME, destination)
        return digest.read_text(encoding="ascii").strip()


if __name__ == "__main__":
    print(push_index(sys.argv[1], [Path(name) for name in sys.argv[2:]]))
