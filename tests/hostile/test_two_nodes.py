# SPDX-License-Identifier: Apache-2.0
"""Two nodes made of namespaces: each with a network, processes and shared memory of its own, and a link between them.

Shown: sums of a rank on each; a link that is cut while no time limit is set ends the next call; ranks that cannot reach
each other give up within the limit. Needs root, ip and unshare; skipped (77) without.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

WORKER = pathlib.Path(__file__).with_name("two_nodes.py")
NAMES = [f"shunt-{os.getpid()}-{side}" for side in "ab"]
LIMIT = 300


def ip(*arguments):
    return subprocess.run(["ip", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def make_nodes():
    veth = [f"shunt{os.getpid() % 100000}{side}" for side in "ab"]
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    if not all(ip("netns", "add", name) for name in NAMES):
        return False
    done = ip("link", "add", veth[0], "netns", NAMES[0], "type", "veth", "peer", "name", veth[1], "netns", NAMES[1])
    for i, name in enumerate(NAMES):
        done = done and ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", veth[i])
        done = done and ip("-n", name, "link", "set", veth[i], "up") and ip("-n", name, "link", "set", "lo", "up")
    return veth if done else False  # no wait: ranks must use ports that the kernel does not report as running yet


def remove_nodes():
    for name in NAMES:
        ip("netns", "del", name)


def start(rank, path, library, act, **variables):
    """Start a rank on the CPU device with its number."""
    environment = {**os.environ, "SHUNT_DEVICE": "cpu", "RANK": str(rank), "NRANKS": "2", "ID": path,
                   "SHUNT_SCRATCH_BYTES": "4M", **variables}
    inside = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$0" "$@"']
    command = ["ip", "netns", "exec", NAMES[rank], *inside, sys.executable, str(WORKER), library, act]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(ranks):
    words, right = "", True
    for rank in ranks:
        try:
            out, err = rank.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            rank.kill()
            out, err = rank.communicate()
            err += "ran out of time\n"
        words += out + err
        right = right and rank.returncode == 0
    return words, right


def wait_for(*paths):
    end = time.monotonic() + LIMIT
    while not all(os.path.exists(path) for path in paths) and time.monotonic() < end:
        time.sleep(0.01)


def main():
    library = sys.argv[1]
    veth = make_nodes()
    if not veth:
        print("skipped: network namespaces need root, ip and unshare")
        return 77
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/sum"
        words, right = finish([start(i, path, library, "sum") for i in range(2)])
        if not right:
            faults.append(f"two nodes of one rank: {words}")

        path = f"{folder}/cut"
        ranks = [start(i, path, library, "cut", SHUNT_TIMEOUT_MS="0") for i in range(2)]
        wait_for(f"{path}.0", f"{path}.1")
        ip("-n", NAMES[0], "link", "set", veth[0], "down")
        open(f"{path}.cut", "w").close()
        words, right = finish(ranks)
        print(words, end="")
        if not right:
            faults.append(f"a link that is cut: {words}")

        path = f"{folder}/blocked"
        limits = {"SHUNT_TIMEOUT_MS": "5000"}
        words, right = finish([start(i, path, library, "sum", **limits) for i in range(2)])
        if right or "nothing answers at 10.77.0.1" not in words and "within 5000 ms" not in words:
            faults.append(f"no way to the other node: {words}")
        print(words, end="")
    print("\n".join(faults) or "passed")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        remove_nodes()
