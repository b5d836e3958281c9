#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same ranks make and destroy communicators many times: time of each, and constant device memory.

A long-lived communicator of all ranks stays beside the short-lived ones. Prints the time of creations 1, 2 and 100,
with Shunt and without, as NOTE lines, and checks that free device memory after the last cycle is what it was after the
twentieth (to 2 MB). Needs two GPUs or more and CUDA's runtime library. As many cycles as the time allows, at most
CYCLES (default 1000). Ranks are processes, for which the real NCCL needs half a second a cycle, or with RANKS=threads
threads of one. With SHUNT_DEVICE=cpu it needs no GPU and checks mappings instead. The last line is `N passed, N
failed`.
"""

import ctypes
import multiprocessing
import os
import threading
import time

import client
from nccl_ctypes import FLOAT32, SUM, Device, Nccl, UniqueId

SETTLED, SLACK = 20, 2 << 20


def shared_mappings():
    with open("/proc/self/maps") as maps:
        return sum("/dev/shm/" in line or "/memfd:" in line for line in maps)


def held(nccl, device):
    """A number that must not grow: used bytes of the GPU (negative free bytes), or shared mappings of the
    process."""
    return shared_mappings() if nccl.cpu else -device.free_bytes()


def rank_main(rank, n, cycles, pipe, barrier):
    nccl = Nccl()
    device = Device(nccl, rank)
    own, out, calls = device.put([0.0]), device.put([0.0]), 0

    def use(comm):
        nonlocal calls
        calls += 1
        device.set(own, [float(rank + calls)])
        device.set(out, [-1.0])
        nccl.ncclAllReduce(own, out, ctypes.c_size_t(1), FLOAT32, SUM, comm, device.stream)
        return device.get(out, 1)[0] == n * calls + n * (n - 1) // 2

    lasting = nccl.init(n, UniqueId.of(pipe.recv()), rank)
    good, times, settled = use(lasting), [], None
    for cycle in range(1, cycles + 1):
        data = pipe.recv()
        if not data:
            break
        barrier.wait(60)
        start = time.monotonic()
        comm = nccl.init(n, UniqueId.of(data), rank)
        times.append(time.monotonic() - start)
        good = use(comm) and use(lasting) and good
        nccl.ncclCommDestroy(comm)
        barrier.wait(60)  # with ranks in one process, the last destroy frees the memory of all
        if cycle == SETTLED:
            settled = held(nccl, device)
        pipe.send(True)
    growth = 0 if settled is None else held(nccl, device) - settled
    nccl.ncclCommDestroy(lasting)
    pipe.send((good, times, growth))


def worker(options):
    n, cycles = options.gpus or 4, int(os.environ.get("CYCLES", "1000"))
    end = time.monotonic() + options.seconds - 8
    context = multiprocessing.get_context("spawn")
    start, barrier = context.Process, context.Barrier(n)
    if os.environ.get("RANKS", "processes") == "threads":
        start, barrier = threading.Thread, threading.Barrier(n)
    pipes = [context.Pipe() for _ in range(n)]
    ranks = [start(target=rank_main, args=(r, n, cycles, pipes[r][1], barrier), daemon=True) for r in range(n)]
    for one in ranks:
        one.start()
    if start is not threading.Thread:
        for _, end_of_rank in pipes:
            end_of_rank.close()  # so that a rank's death gives an error here, not an endless wait
    nccl = Nccl()

    def tell(data):
        for pipe, _ in pipes:
            pipe.send(data)

    tell(nccl.unique_id().data())
    for _ in range(cycles):
        if time.monotonic() > end:
            tell(b"")
            break
        tell(nccl.unique_id().data())
        for pipe, _ in pipes:
            pipe.recv()
    every = [pipe.recv() for pipe, _ in pipes]
    for one in ranks:
        one.join(10)
    times, growth = every[0][1], max(growth for _, _, growth in every)
    for index in (1, 2, 100, len(times)):
        if index <= len(times):
            print(f"NOTE creation {index}: {1000 * times[index - 1]:.1f} ms", flush=True)
    print(f"NOTE {len(times)} cycles, growth since cycle {SETTLED}: {growth}", flush=True)
    client.report({"results": all(good for good, _, _ in every), "enough cycles": len(times) > SETTLED,
                   "memory is flat": growth <= (0 if nccl.cpu else SLACK)})


if __name__ == "__main__":
    client.compare(__doc__, worker)
