"""A stand-in for nvidia-cuda-mps-control: `-d` starts a daemon, else commands come on stdin.

Files in the log folder change it: `refuse` (the daemon does not start), `hang` (no command ends).
The daemon writes its commands to the file `commands` there.
"""

import os
import signal
import socket
import sys
from pathlib import Path

PIPES = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
LOGS = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])


def answer(command, servers):
    with (LOGS / "commands").open("a") as log:
        log.write(f"{command}\n")
    match command.split():
        case ["get_server_list"]:
            return "".join(f"{pid}\n" for pid in servers)
        case ["start_server", "-uid", _]:
            servers.append(4242)
            return ""
        case ["quit"]:
            return ""
        case [name, *_] if name.startswith("set_"):
            return "Invalid device\n" if "GPU-gone" in command else ""
    return f"Unknown command {command}\n"


def serve():
    servers = []
    with socket.socket(socket.AF_UNIX) as listener:
        (PIPES / "control").unlink(missing_ok=True)
        os.chdir(PIPES)  # The path of a socket has at most 107 bytes.
        listener.bind("control")
        listener.listen()
        (PIPES / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        if os.fork():
            os._exit(0)
        os.setsid()
        (PIPES / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        signal.alarm(120)
        while True:
            with listener.accept()[0] as user, user.makefile("rw") as lines:
                commands = lines.readline().strip().split(";")
                lines.write("".join(answer(command, servers) for command in commands if command))
            if "quit" in commands:
                (PIPES / "control").unlink()
                return


def ask():
    commands = ";".join(sys.stdin.read().splitlines())
    with socket.socket(socket.AF_UNIX) as user:
        try:
            os.chdir(PIPES)
            user.connect("control")
        except OSError:
            sys.exit(f"Cannot find MPS control daemon process at {PIPES}")
        with user.makefile("rw") as lines:
            lines.write(f"{commands}\n")
            lines.flush()
            sys.stdout.write(lines.read())


if (LOGS / "hang").exists():
    signal.alarm(120)
    signal.pause()
if sys.argv[1:] != ["-d"]:
    ask()
elif (LOGS / "refuse").exists():
    sys.exit("the driver is too old")
else:
    serve()
