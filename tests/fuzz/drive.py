"""`python -m fuzz.drive TARGET SECONDS FOUND`: fuzzes one target, guided by the code it reaches.

Inputs of the corpus come first, then those of the folder FOUND. There, what reaches new code is
added, and what fails as `fail-…`; also the input that ended the process of the last run. All
failures of a run are printed, one input for each place that raises. Exit code 1: there were some.

libFuzzer ends its process from within, so that there is one process for each target.
"""

import faulthandler
import logging
import mmap
import os
import resource
import subprocess
import sys
import time
import traceback
from hashlib import sha256
from pathlib import Path

import atheris
import structlog
from fuzz.mutate import Mutator

OURS = ("linkwise", "webhook", "scorer", "certs", "agent")
with atheris.instrument_imports(include=[*OURS]):
    from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
MAX_SECONDS = 1.0
"""Of the processor, for one input."""
MAX_BYTES = 100 << 20
"""That memory may grow by, for one input."""
MAX_GROWTH = 256 << 20
"""That memory may grow by, over all inputs after the first ones; libFuzzer keeps some of them."""
MAX_INPUT = 1 << 16
"""Bytes of one input."""
_PAGE = resource.getpagesize()
_ROOT = Path(__file__).parents[2]


class Driver:
    """Runs one target on each input, and keeps what fails."""

    def __init__(self, name: str, seconds: float, found: Path) -> None:
        """Say what is run, for how long, and where what fails is put."""
        self._name, self._target, self._found = name, TARGETS[name], found
        self._last = _LastInput(found)
        self._end = time.monotonic() + seconds
        self._warm = self._end - 0.8 * seconds
        self._held = 0
        """Memory when caches are full."""
        self._inputs = 0
        self._known = {path.name for path in found.iterdir()}
        self._failures: dict[str, tuple[int, str]] = {}

    def __call__(self, data: bytes) -> None:
        """Run the target once."""
        now = time.monotonic()
        if not self._held and now > self._warm:
            self._held = _memory()
        if now > self._end:
            if self._held and (grown := _memory() - self._held) > MAX_GROWTH:
                self._keep(b"", "leaks", f"{grown >> 20} MiB in {self._inputs} inputs")
            self.finish()
        self._inputs += 1
        self._last.write(data)
        before, peak, began = _memory(), _peak(), time.process_time()
        try:
            self._target(data)
        except Exception as error:  # noqa: BLE001 - any is a defect.
            self._keep(data, _place(error), traceback.format_exc(limit=-8))
        if time.process_time() - began > MAX_SECONDS and self._is_shorter(data, "slow"):
            took = self._again(data)
            if took > MAX_SECONDS:
                self._keep(data, "slow", f"{took:.1f} s for {len(data)} bytes")
        if _peak() > peak and (grown := _peak() - before) > MAX_BYTES:
            self._keep(data, "grows", f"{grown >> 20} MiB for {len(data)} bytes")

    def _is_shorter(self, data: bytes, place: str) -> bool:
        known = self._failures.get(place)
        return known is None or len(data) < known[0]

    def _again(self, data: bytes) -> float:
        """Return how long an input takes where nothing is counted [s]."""
        path = self._found / "slow"
        path.write_bytes(data)
        argv = [sys.executable, "-m", "fuzz.once", self._name, str(path)]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        path.unlink()
        return float(ran.stdout or 0)

    def _keep(self, data: bytes, place: str, message: str) -> None:
        """Keep the shortest input that fails in a place."""
        if not self._is_shorter(data, place):
            return
        self._failures[place] = len(data), message
        name = f"fail-{sha256(place.encode()).hexdigest()[:12]}"
        (self._found / name).write_bytes(data)
        print(f"{self._name}: {name}: {place}", flush=True)

    def finish(self) -> None:
        """Tell what was found, and end the process."""
        new = {path.name for path in self._found.iterdir()} - self._known
        print(f"{self._name}: {self._inputs} inputs, {len(new)} kept")
        for place, (_, message) in self._failures.items():
            print(f"--- {place}\n{message}")
        sys.stdout.flush()
        self._last.write(b"")
        os._exit(1 if self._failures else 0)


class _LastInput:
    """The input that is being run, in a file that a crash of the process leaves as it is."""

    def __init__(self, found: Path) -> None:
        """Keep the input that ended the run before, where there is one, among what fails."""
        path = found.parent / f"{found.name}.last"
        if path.exists() and (data := _unframed(path.read_bytes())):
            (found / f"fail-crash-{sha256(data).hexdigest()[:12]}").write_bytes(data)
        path.write_bytes(bytes(8 + MAX_INPUT))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def write(self, data: bytes) -> None:
        """Note an input; an empty one where none is run any more."""
        self._map[: 8 + len(data)] = len(data).to_bytes(8, "big") + data


def _unframed(content: bytes) -> bytes:
    return content[8 : 8 + int.from_bytes(content[:8], "big")]


def main(name: str, seconds: float, found: Path) -> None:
    """Fuzz until the time is over."""
    faulthandler.enable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found.mkdir(parents=True, exist_ok=True)
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    driver = Driver(name, seconds, found)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    # What would take the machine's memory fails with MemoryError instead.
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
    limits = (
        f"-max_len={MAX_INPUT}",
        "-len_control=0",
        "-timeout=60",
        "-rss_limit_mb=2048",
        "-reload=0",
        f"-seed={os.environ.get('FUZZ_SEED', '0')}",  # 0: another one in each run.
    )
    quiet = ("-verbosity=0", f"-artifact_prefix={found}/fail-")
    folders = (str(found), str(CORPUS / name))
    atheris.Setup(
        [name, *folders, *limits, *quiet], driver, custom_mutator=Mutator(seeds, _change_bytes)
    )
    atheris.Fuzz()


def _change_bytes(data: bytes, most: int) -> bytes:
    changed: bytes = atheris.Mutate(data, most)  # Looked up here: `Fuzz` replaces it.
    return changed


def _memory() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - once for each input.
        return int(file.read().split()[1]) * _PAGE


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _place(error: BaseException) -> str:
    """Return the type of an error, and the last line of ours that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(_ROOT))]
    last = (ours or frames)[-1]
    return f"{type(error).__name__} {Path(last.filename).relative_to(_ROOT)}:{last.name}"


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
