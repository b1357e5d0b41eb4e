"""Processes as `/proc` shows them, in a folder."""

UID, ID = "6b0a3f9e-7f53-4a8b-9d0e-1c2d3e4f5a6b", "ab" * 32


def a_process(proc, pid, *, name="train", cgroup=f"0::/kubepods/pod{UID}/{ID}\n", **fields):
    """Write a process of one thread; return its folder."""
    folder = proc / str(pid)
    (folder / f"task/{pid}").mkdir(parents=True)
    state, started = fields.get("state", "S"), fields.get("started", 99)
    (folder / "stat").write_text(f"{pid} ({name}) {state} {'0 ' * 18}{started} 0\n")
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(cgroup)
    return folder
