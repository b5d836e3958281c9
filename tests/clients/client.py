# SPDX-License-Identifier: Apache-2.0
"""For the scripts of this folder: run a client twice, with Shunt and without, and compare.

Downloads nothing. The library is that of --library, else the newest libnccl.so.2 of this checkout's
build folders. NVLink multicast stays off for all libraries; every run has a time limit.

A worker prints its outcomes as lines `RESULT {"check": outcome, ...}`, or `SKIP why` if something is
missing. An outcome is true, false, or a word (PyTorch's own tests: ok, failed, skipped).
"""

import argparse
import importlib.util
import json
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
    p.add_argument("--only", default="", help="only checks whose name begins with one of these words, with commas")
    return p


def wanted(options, name):
    return any(name.startswith(word) for word in options.only.split(","))


def library(options):
    if options.library:
        found = [options.library]
    else:
        found = sorted(ROOT.glob("build*/lib/libnccl.so.2"), key=lambda path: path.stat().st_mtime)
    if not found or not found[-1].exists():
        sys.exit("no libnccl.so.2 of Shunt: build the project or pass --library")
    return found[-1].resolve()


def ended_by_force(process):
    """Kill the client and its ranks; returns its output. torchrun gives each rank its own session and ends them
    on request; other ranks are in the session made here."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired as late:  # a rank still has the pipe open
        return (late.output or b"").decode(errors="replace")


class Run:
    """One finished run: status, text, and Shunt's statistics (None if it printed none)."""

    def __init__(self, command, seconds, preload=None, audit=False):
        environment = dict(os.environ, **QUIET)
        environment.pop("LD_PRELOAD", None)
        if preload:
            environment.update(LD_PRELOAD=str(preload), SHUNT_STATS="1")
        else:
            environment.pop("LD_AUDIT", None)
        if preload and audit:  # for clients that open NCCL by an absolute path
            environment.update(LD_AUDIT=str(preload.parent / "libshunt_audit.so"), SHUNT_LIB=str(preload))
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        try:
            self.text, _ = process.communicate(timeout=seconds)
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            self.text = ended_by_force(process)
            self.status = 124
        counts = re.findall(r"shunt: taken=(\d+) forwarded=(\d+)", self.text)
        self.taken = sum(int(taken) for taken, _ in counts) if counts else None
        self.forwarded = sum(int(forwarded) for _, forwarded in counts) if counts else None

    def lines(self, prefix):
        """The rest of each line that starts with prefix."""
        return [line[len(prefix):].strip() for line in self.text.splitlines() if line.startswith(prefix)]

    def results(self):
        """All RESULT lines, merged."""
        return {name: outcome for line in self.lines("RESULT ") for name, outcome in json.loads(line).items()}


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


def report(results):
    """Print results; a worker calls it repeatedly, so that finished checks are known at the time limit."""
    print("RESULT " + json.dumps(results), flush=True)


def skip(why):
    """End the worker: the client cannot run here."""
    print("SKIP " + why, flush=True)
    sys.exit(0)


def gpus_here():
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return 0
    return sum(line.startswith("GPU") for line in listed.splitlines())


def same(name, plain, shunt):
    """Whether Shunt's outcome is right, or NCCL alone fails or skips in the same way."""
    good = shunt in (True, "ok") or shunt == plain
    return good, f"{name}: {shunt}, plain {plain}"


def compare(doc, worker, seconds=42, torchrun_ranks=False, audit=False):
    """The main function of a script: run the worker twice in separate processes, and compare."""
    p = parser(doc.splitlines()[0])
    p.set_defaults(seconds=seconds)
    p.add_argument("--worker", action="store_true", help="the program itself")
    options = p.parse_args()
    if options.worker:
        worker(options)
        return
    cpu = os.environ.get("SHUNT_DEVICE") in ("cpu", "host")  # the CPU device has no NCCL to compare with
    gpus = options.gpus or (4 if cpu else gpus_here())
    if gpus < 2:
        print("SKIP: two GPUs are needed")
        sys.exit(77)
    if torchrun_ranks and importlib.util.find_spec("torch") is None:
        print("SKIP: Python has no torch")
        sys.exit(77)
    shunt = library(options)
    arguments = ["--worker", f"--only={options.only}", f"--gpus={gpus}", f"--seconds={options.seconds}"]
    command = (torchrun(gpus, sys.argv[0], *arguments) if torchrun_ranks
               else [sys.executable, sys.argv[0], *arguments])
    plain = None if cpu else Run(command, options.seconds)
    if plain and plain.lines("SKIP "):
        print("SKIP: " + plain.lines("SKIP ")[0])
        sys.exit(77)
    with_shunt = Run(command, options.seconds, shunt, audit)
    if cpu and with_shunt.lines("SKIP "):
        print("SKIP: " + with_shunt.lines("SKIP ")[0])
        sys.exit(77)
    plain = plain or with_shunt
    verdict = Verdict()
    for name, run in (("plain", plain), ("Shunt", with_shunt)):
        verdict.check(run.status == 0 and run.results(), f"{name}: status {run.status}\n{run.text[-3000:]}")
    before, after = plain.results(), with_shunt.results()
    for name in sorted(before.keys() & after.keys()):
        verdict.check(*(same(name, before[name], after[name]) if not cpu else (after[name] is True, name)))
    both = sorted(name for name in before.keys() & after.keys() if before[name] == after[name] in (False, "failed"))
    if both:
        print(f"note: these fail with NCCL alone too: {', '.join(both)}")
    alone = before.keys() ^ after.keys()
    if alone:
        listed = ", ".join(f"{name}: {(before | after)[name]}" for name in sorted(alone))
        print(f"not compared, for one run alone came so far: {listed}")
    # A run may end early by its own time limit, and then says so. PyTorch's own tests may fail with NCCL alone, too.
    ended = with_shunt.status == 0 and not any("not reached" in line for line in with_shunt.lines("NOTE "))
    for name in sorted(alone):
        good = not ended or before[name] in (False, "failed") if name in before else after[name] is not False
        verdict.check(good, f"{name}: one run alone has it")
    for who, run in (("Shunt", with_shunt),) if cpu else (("plain", plain), ("Shunt", with_shunt)):
        for line in run.lines("NOTE "):
            print(f"{who}: {line}")
    print(f"taken {with_shunt.taken}, forwarded {with_shunt.forwarded}")
    verdict.check(bool(with_shunt.taken), "Shunt took no call")
    verdict.end()
