from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("linkwise", "webhook", "scorer", "certs", "agent", "dashboard")
LONGEST = 300
"""Lines of a module; generated ones may have more."""


def longer() -> set[str]:
    modules = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        path.relative_to(ROOT).as_posix()
        for path in modules
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
        and len(path.read_text(encoding="utf-8").splitlines()) > LONGEST
    }


def test_no_module_is_longer_than_300_lines():
    assert longer() == set()
