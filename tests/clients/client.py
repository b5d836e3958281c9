"""What the scripts of this folder share: run a client twice, with Shunt preloaded and without.

Nothing is fetched. The library is the one named by --library, else the newest libnccl.so.2 of this
checkout's build folders. Multicast over NVLink stays off for all libraries; every run has a time limit.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def parser(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--library", type=Path, help="Shunt's libnccl.so.2 (default: of the newest build*/lib)")
    p.add_argument("--gpus", type=int, default=0, help="ranks (default: all GPUs)")
    p.add_argument("--seconds", type=int, default=240, help="limit of one run")
    return p


def library(options):
    if options.library:
        found = [options.library]
    else:
        found = sorted(ROOT.glob("build*/lib/libnccl.so.2"), key=lambda path: path.stat().st_mtime)
    if not found or not found[-1].exists():
        sys.exit("no libnccl.so.2 of Shunt: build the project or pass --library")
    return found[-1].resolve()


class Run:
    """One finished run: status, text, and what Shunt counted (None if it said nothing)."""

    def __init__(self, command, seconds, preload=None):
        environment = dict(os.environ, **QUIET)
        environment.pop("LD_PRELOAD", None)
        if preload:
            environment.update(LD_PRELOAD=str(preload), SHUNT_STATS="1")
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        try:
            self.text, _ = process.communicate(timeout=seconds)
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too: the session is ours
            self.text, _ = process.communicate()
            self.status = 124
        counts = re.findall(r"shunt: taken (\d+) calls, forwarded (\d+)", self.text)
        self.taken = sum(int(taken) for taken, _ in counts) if counts else None
        self.forwarded = sum(int(forwarded) for _, forwarded in counts) if counts else None

    def lines(self, prefix):
        """The rest of each line that starts with prefix."""
        return [line[len(prefix):].strip() for line in self.text.splitlines() if line.startswith(prefix)]


class Verdict:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, good, what):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}")

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed or not self.passed else 0)


def torchrun(gpus, script, *arguments):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}", script,
            *arguments]
