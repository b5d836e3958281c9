#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed during a call, and calls that only abort, revoke or shrink can end, with Shunt only.

Killed: each survivor gets the error from ncclCommGetAsyncError, aborts, and makes a new communicator with the others,
or alone if there were two. Freed: one rank never calls; an abort, revoke, or shrink with abort ends the waits of the
others. On GPUs SHUNT_TIMEOUT_MS=2000 ends the waits for a dead rank, within 5 s, and kernels are freed within 0.1 s. On
the CPU device, on a possibly busy processor, no time is checked: SHUNT_TIMEOUT_MS is longer than the test, so that
only the check of peers, or the abort, can end a wait. The real NCCL has no such limits, so there is no comparison.
Needs two GPUs or more and CUDA's runtime library, or SHUNT_DEVICE=cpu. The last line is `N passed, N failed`.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

import client
from nccl_ctypes import FLOAT32, SUM, Device, Nccl, UniqueId

COUNT = 4096
ABORT_FLAG = 1  # NCCL_SHRINK_ABORT


def all_reduce(nccl, device, comm, memory):
    return nccl.library.ncclAllReduce(memory, memory, ctypes.c_size_t(COUNT), FLOAT32, SUM, comm, device.stream)


def wait(device):
    return device.cuda.cudaStreamSynchronize(device.stream) if device.cuda else 0


def fresh_sum(nccl, device, comm, n):
    memory = device.put([1.0] * COUNT)
    good = all_reduce(nccl, device, comm, memory) == 0 and set(device.get(memory, COUNT)) == {n}
    device.free(memory)
    return good


def outlive(nccl, device, comm):
    """Seconds until a survivor's error is reported; None if it never is."""
    memory, state, start = device.put([1.0] * COUNT), ctypes.c_int(0), time.monotonic()
    while time.monotonic() - start < 200:
        if state.value in (0, 7) and all_reduce(nccl, device, comm, memory) == 0:
            wait(device)
        nccl.ncclCommGetAsyncError(comm, ctypes.byref(state))
        if state.value not in (0, 7):
            return time.monotonic() - start
    return None


def killed(nccl, device, rank, n, pipe, barrier):
    comm = nccl.init(n, UniqueId.of(pipe.recv()), rank)
    good = fresh_sum(nccl, device, comm, n)
    barrier.wait(300)
    if rank == n - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    seconds = outlive(nccl, device, comm)
    nccl.ncclCommAbort(comm)
    pipe.send(("noticed", good and seconds is not None and (nccl.cpu or seconds < 5), f"{seconds} s"))
    again = nccl.init(n - 1, UniqueId.of(pipe.recv()), rank)
    pipe.send(("went on", fresh_sum(nccl, device, again, n - 1), ""))
    nccl.ncclCommDestroy(again)


def freed(how, nccl, device, rank, n, pipe, barrier):
    """All ranks except the last call; `end` is the time at which this one's call, or its kernel, ended."""
    comm, limit = nccl.init(n, UniqueId.of(pipe.recv()), rank), 0.1 if device.cuda else float("inf")
    good, memory, end = fresh_sum(nccl, device, comm, n), device.put([1.0] * COUNT), []

    def call():
        if device.cuda:
            device.check(device.cuda.cudaSetDevice(rank))
        all_reduce(nccl, device, comm, memory)
        wait(device)
        end.append(time.monotonic())

    caller = threading.Thread(target=call)
    barrier.wait(300)
    if rank != n - 1:
        caller.start()
    time.sleep(0.3)
    waited = not end
    barrier.wait(300)  # another rank's revoke frees this one, too
    start = time.monotonic()
    child, gone = ctypes.c_void_p(), (ctypes.c_int * 1)(n - 1)
    if how == "abort":
        nccl.ncclCommAbort(comm)
    elif how == "revoke":
        nccl.ncclCommRevoke(comm, 0)
    elif rank != n - 1:
        nccl.ncclCommShrink(comm, gone, 1, ctypes.byref(child), None, ABORT_FLAG)
        good = good and fresh_sum(nccl, device, child, n - 1)
    if rank != n - 1:
        caller.join(200)
    seconds = end[0] - start if end else None
    pipe.send((f"freed by {how}", good and waited and (rank == n - 1 or (seconds is not None and seconds < limit)),
               f"{seconds} s"))
    for left in (child, comm if how != "abort" else None):
        if left:
            nccl.ncclCommAbort(left)


def rank_main(scene, rank, n, pipe, barrier):
    try:
        nccl = Nccl()
        device = Device(nccl, rank)
        if scene == "killed":
            killed(nccl, device, rank, n, pipe, barrier)
        else:
            freed(scene, nccl, device, rank, n, pipe, barrier)
    except Exception as error:
        pipe.send((scene, False, f"{type(error).__name__}: {error}"))


def play(scene, n):
    context = multiprocessing.get_context("spawn")
    pipes, barrier = [context.Pipe() for _ in range(n)], context.Barrier(n)
    ranks = [context.Process(target=rank_main, args=(scene, r, n, pipes[r][1], barrier)) for r in range(n)]
    for rank in ranks:
        rank.start()
    answering = pipes[:-1] if scene == "killed" else pipes
    results = {}
    for turn in range(2 if scene == "killed" else 1):
        data = Nccl().unique_id().data()
        for pipe, _ in pipes if turn == 0 else answering:
            pipe.send(data)
        for r, (pipe, _) in enumerate(answering):
            name, good, why = pipe.recv() if pipe.poll(400) else (scene, False, "no answer")
            results[name] = results.get(name, True) and good
            print(f"NOTE rank {r}: {name}: {why}", flush=True)
    for rank in ranks:
        rank.join(100)
        rank.kill()
    return results


def worker(options):
    cpu = os.environ.get("SHUNT_DEVICE") in ("cpu", "host")
    os.environ["SHUNT_TIMEOUT_MS"] = "600000" if cpu else "2000"
    for scene in ("killed", "abort", "revoke", "shrink"):
        if client.wanted(options, scene):
            client.report(play(scene, options.gpus))


def main():
    p = client.parser(__doc__.splitlines()[0])
    p.set_defaults(seconds=400)
    p.add_argument("--worker", action="store_true", help="the program itself")
    options = p.parse_args()
    if options.worker:
        worker(options)
        return
    options.gpus = options.gpus or (3 if os.environ.get("SHUNT_DEVICE") in ("cpu", "host") else client.gpus_here())
    if options.gpus < 2:
        print("SKIP: two GPUs are needed")
        sys.exit(77)
    run = client.Run([sys.executable, __file__, "--worker", f"--gpus={options.gpus}", f"--only={options.only}"],
                     options.seconds, client.library(options))
    verdict = client.Verdict()
    verdict.check(run.status == 0 and run.results(), f"status {run.status}\n{run.text[-3000:]}")
    for line in run.lines("NOTE "):
        print(line)
    for name, good in run.results().items():
        verdict.check(good, name)
    verdict.end()


if __name__ == "__main__":
    main()
