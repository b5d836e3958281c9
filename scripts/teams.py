# SPDX-License-Identifier: Apache-2.0
"""teams.py - sets of ranks, with Shunt and with NCCL, that take turns; for decode-bench and train-bench.

The sets run side by side, so that they see the same machine; the waiting ones leave the GPUs idle. A rank is the
calling script, started with --rank; it reads requests, one a line, and answers each with `answer`.
"""

import argparse
import contextlib
import csv
import importlib.util
import json
import math
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# Variables that vLLM sets for VLLM_BATCH_INVARIANT=1 (docs/recipes/vllm-sglang.md).
PINS = {"NCCL_LAUNCH_MODE": "GROUP", "NCCL_COLLNET_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_P2P_NET_DISABLE": "1",
        "NCCL_MIN_NCHANNELS": "1", "NCCL_MAX_NCHANNELS": "1", "NCCL_PROTO": "Simple", "NCCL_ALGO": "allreduce:tree",
        "NCCL_NTHREADS": "1", "NCCL_SOCKET_NTHREADS": "1"}
SKIPPED = 77


def answer(value):
    print("ANSWER " + json.dumps(value), flush=True)


class Rank:
    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.answers, self.text = queue.Queue(), []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                self.answers.put(json.loads(line[len("ANSWER "):]))
            else:
                self.text.append(line)
        self.answers.put(None)  # marks the rank's end


class Team:
    def __init__(self, name, options, prefix, deadline, arguments, variables):
        self.name, self.deadline = name, deadline
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, **QUIET, "SHUNT_STATS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "WORLD_SIZE": str(options.gpus), **variables}
        command = [*prefix, sys.executable, os.path.abspath(sys.argv[0]), "--rank", *(["--cpu"] if options.cpu else []),
                   *arguments]
        self.ranks = [Rank(command, dict(environment, RANK=str(rank))) for rank in range(options.gpus)]

    def collect(self):
        """Wait for one answer of each rank."""
        answers = []
        for number, rank in enumerate(self.ranks):
            try:
                answers.append(rank.answers.get(timeout=max(0.1, self.deadline - time.monotonic())))
            except queue.Empty:
                raise SystemExit(self.fault(number, "gave no answer in time"))
            if answers[-1] is None:
                raise SystemExit(self.fault(number, "ended"))
        return answers

    def fault(self, number, what):
        return f"{''.join(self.ranks[number].text)[-3000:]}\n{program()}: {self.name}: rank {number} {what}"

    def ask(self, *words):
        for rank in self.ranks:
            rank.process.stdin.write(" ".join(map(str, words)) + "\n")
            rank.process.stdin.flush()
        return self.collect()

    def end(self):
        """End the ranks; returns the number of calls that Shunt took, from its statistics; None if it was not
        loaded."""
        for rank in self.ranks:
            rank.process.stdin.close()
        for number, rank in enumerate(self.ranks):
            rank.reader.join(max(0.1, self.deadline - time.monotonic()))
            if rank.reader.is_alive() or rank.process.wait() != 0:
                raise SystemExit(self.fault(number, "did not end well"))
        taken = re.findall(r"shunt: taken=(\d+)", "".join("".join(rank.text) for rank in self.ranks))
        return sum(map(int, taken)) if taken else None

    def kill(self):
        for rank in self.ranks:
            rank.process.kill()


# For each set: whether it runs with Shunt, and its variables.
TWO = {"nccl": (False, {}), "shunt": (True, {})}
THREE = {"pinned": (False, PINS), "deterministic": (True, {**PINS, "SHUNT_DETERMINISTIC": "1"}), "shunt": (True, {})}


@contextlib.contextmanager
def started(options, prefix, arguments=(), sets=TWO):
    """Start the teams; returns them by name."""
    deadline = time.monotonic() + options.seconds
    teams = {}
    try:
        for name, (with_shunt, variables) in sets.items():
            teams[name] = Team(name, options, prefix if with_shunt else [], deadline, arguments, variables)
        for team in teams.values():
            team.collect()
        yield teams
    finally:
        for team in teams.values():
            team.kill()


class Field:
    """All sets of ranks; a set that fails is left out from then on."""

    def __init__(self, options, prefix, sets, arguments):
        """arguments(name): those of the set's ranks."""
        self.limit = time.monotonic() + options.seconds
        self.teams, self.missing = {}, {}
        for name, (with_shunt, variables) in sets.items():
            self.teams[name] = Team(name, options, prefix if with_shunt else [], 0, arguments(name), variables)

    def each(self, action, seconds):
        """{name: action(team)} of the sets that have not failed."""
        found = {}
        for name, team in list(self.teams.items()):
            team.deadline = min(self.limit, time.monotonic() + seconds)
            try:
                found[name] = action(team)
            except (SystemExit, OSError) as error:
                self.leave_out(name, error)
        return found

    def leave_out(self, name, error):
        words = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.missing[name] = ": ".join(dict.fromkeys(reversed(words[-2:])))
        self.teams.pop(name).kill()
        print(error, file=sys.stderr)
        print(f"# left out: {self.missing[name]}", flush=True)

    def kill(self):
        for team in self.teams.values():
            team.kill()


def served(taken, sets=TWO):
    """Whether Shunt took calls in its teams, and was not loaded in the others."""
    print("# calls taken by Shunt: " + ", ".join(f"{taken[name]} ({name})" for name in taken if sets[name][0]))
    if all(taken[name] if with_shunt else taken[name] is None for name, (with_shunt, _) in sets.items()):
        return True
    print("FAILED: Shunt took no call, or was loaded in the set that runs without it")
    return False


def program():
    return os.path.basename(sys.argv[0])


def difference(a, b):
    """The distance between two lists of numbers, relative to the second list's norm; infinite for NaN."""
    distance, length = math.dist(a, b), math.hypot(*b)
    return distance / length if distance < math.inf and 0 < length < math.inf else math.inf


def report(rows, options, model, shown=0):
    """Print the rows except the first `shown` ones, and write all rows to the file of --csv."""
    facts = {"model": model,
             "hardware": hardware(options), "multicast": "off (NCCL_NVLS_ENABLE=0)", "rounds": options.rounds,
             "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
             "command": " ".join([f"scripts/{program()}", *sys.argv[1:]])}
    if shown == 0:
        for name, value in facts.items():
            print(f"# {name}: {value}")
    widths = [max(len(name), 8) for name in rows[0]]
    for cells in [list(rows[0]), *([str(value) for value in row.values()] for row in rows)][shown + (shown > 0):]:
        print(" ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths)), flush=True)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            file.writelines(f"# {name}: {value}\n" for name, value in facts.items())
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def listed_gpus():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stdout.splitlines() if done.returncode == 0 and line]


def hardware(options):
    return "processors, nothing to measure" if options.cpu else f"{options.gpus} x {listed_gpus()[0]}"


def command(given):
    """The path of `shunt`: the given one, else that of the newest build."""
    built = [given] if given else sorted(ROOT.glob("build*/bin/shunt"), key=lambda path: path.stat().st_mtime)
    if not built:
        sys.exit(f"{program()}: no build*/bin/shunt: build the project, or pass --shunt")
    return str(built[-1])


def settle(options):
    """Set options.gpus, and return the command prefix of Shunt's ranks; exits with the reason if they cannot run."""
    if options.cpu:
        options.gpus = options.gpus or 2
        return []
    options.gpus = options.gpus or len(listed_gpus())
    if options.gpus not in (2, 4, 8) or options.gpus > len(listed_gpus()):
        print(f"SKIP: 2, 4 or 8 GPUs are needed; {len(listed_gpus())} are here, {options.gpus} were asked for")
        sys.exit(SKIPPED)
    if importlib.util.find_spec("torch") is None:
        print(f"SKIP: {sys.executable} has no torch")
        sys.exit(SKIPPED)
    return [command(options.shunt), "run", "--no-tune", "--"]


def parser(description, rounds):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("-g", "--gpus", type=int, default=0)
    p.add_argument("--csv")
    p.add_argument("--shunt", help="the built command (default: of the newest build*/bin)")
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--seconds", type=int, default=180, help="limit of the whole run")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return p


def join(cpu):
    """Join the process group in a rank; returns rank, ranks and device."""
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu") if cpu else torch.device("cuda", rank)
    if cpu:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if cpu else "nccl", device_id=None if cpu else device)
    return rank, ranks, device
