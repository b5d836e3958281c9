#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A communicator is suspended and resumed many times: time of each, device memory, and a graph captured before.

Others beside it stay (COMMS communicators in all, default 2); each has made all-reduces of 1 KB and of 4 MB (256 KB on
the CPU device), eager and captured. After every resume the graph of the suspended one is replayed and checked. Prints
medians and maxima with Shunt and without as NOTE lines. Fails if memory (on the CPU device: shared mappings) is not given
back, or grows. As many rounds as the time allows, at most ROUNDS (default 20). Needs a GPU for each rank, or MPS and an
NCCL that lets ranks share one (NCCL_MULTI_RANK_GPU_ENABLE); NCCL 2.29.7 or newer, by LD_LIBRARY_PATH; and CUDA's runtime
library. With SHUNT_DEVICE=cpu it needs no GPU and repeats the calls. The last line is `N passed, N failed`.
"""

import ctypes
import multiprocessing
import os
import statistics
import time

import client
from cycles import held
from nccl_ctypes import FLOAT32, SUM, Device, Nccl, UniqueId

SHORT, LONG, LONG_ON_CPU = 256, 1 << 20, 64 << 10  # floats
MEMORY = 1  # what is suspended
TURNS, LAUNCHES = 7, 20
SLACK = 4 << 20


class Calls:
    """A short and a long all-reduce, on GPUs captured in a graph too."""

    def __init__(self, nccl, device, comm, ranks, buffers, count):
        self.nccl, self.device, self.comm, self.ranks = nccl, device, comm, ranks
        (self.input, *self.outputs), self.counts = buffers, (SHORT, count)
        self.graph, self.replay = ctypes.c_void_p(), ctypes.c_void_p()
        self.issue()
        if device.cuda:
            device.get(self.outputs[0], 1)
            device.check(device.cuda.cudaStreamBeginCapture(device.stream, 2))
            self.issue()
            device.check(device.cuda.cudaStreamEndCapture(device.stream, ctypes.byref(self.graph)))
            device.check(device.cuda.cudaGraphInstantiate(ctypes.byref(self.replay), self.graph, ctypes.c_uint64(0)))

    def issue(self):
        for output, count in zip(self.outputs, self.counts):
            self.nccl.ncclAllReduce(self.input, output, ctypes.c_size_t(count), FLOAT32, SUM, self.comm, self.device.stream)

    def again(self):
        if self.device.cuda:
            self.device.check(self.device.cuda.cudaGraphLaunch(self.replay, self.device.stream))
        else:
            self.issue()

    def poison(self):
        for output, count in zip(self.outputs, self.counts):
            if self.device.cuda:
                self.device.check(self.device.cuda.cudaMemset(output, 0xa5, ctypes.c_size_t(4 * count)))
            else:
                ctypes.memset(output, 0xa5, 4 * count)

    def right(self):
        sums = {sum for output, count in zip(self.outputs, self.counts) for sum in self.device.get(output, count)}
        return sums == {self.ranks * (self.ranks + 1) / 2}

    def microseconds(self, barrier):
        """The time of a replay: the median of some turns."""
        times = []
        for _ in range(TURNS):
            barrier.wait(60)
            begin = time.monotonic()
            for _ in range(LAUNCHES):
                self.again()
            self.device.get(self.outputs[0], 1)
            times.append((time.monotonic() - begin) / LAUNCHES * 1e6)
        return statistics.median(times)


def rank_main(rank, options, ids, results, barrier):
    ranks, gpus = options.gpus, client.gpus_here() or 1
    end = time.monotonic() + options.seconds / 2
    nccl = Nccl()
    device = Device(nccl, rank % gpus)
    comms = [nccl.init(ranks, UniqueId.of(data), rank) for data in ids]
    count = LONG_ON_CPU if nccl.cpu else LONG
    buffers = device.put([rank + 1.0] * count), device.put([0.0] * SHORT), device.put([0.0] * count)
    calls = [Calls(nccl, device, comm, ranks, buffers, count) for comm in comms]

    def used():
        barrier.wait(60)
        found = held(nccl, device)
        barrier.wait(60)
        return found

    before, most = calls[0].microseconds(barrier), used()
    good, suspends, resumes, given = True, [], [], []
    for _ in range(int(os.environ.get("ROUNDS", "20"))):
        if results.stop.value:
            break
        barrier.wait(60)
        begin = time.monotonic()
        nccl.ncclCommSuspend(comms[0], MEMORY)
        suspends.append(1e3 * (time.monotonic() - begin))
        given.append(most - used())
        calls[0].poison()
        barrier.wait(60)
        begin = time.monotonic()
        nccl.ncclCommResume(comms[0])
        resumes.append(1e3 * (time.monotonic() - begin))
        calls[0].again()
        good = calls[0].right() and good
        if rank == 0:
            results.stop.value = time.monotonic() > end
        barrier.wait(60)
    grown, after = used() - most, calls[0].microseconds(barrier)
    for call in calls:
        call.poison()
        call.again()
        good = call.right() and good
    for comm in comms:
        nccl.ncclCommDestroy(comm)
    results.put((rank, good, suspends, resumes, given, grown, before, after))


class Results:
    """What the ranks put, and whether they stop early."""

    def __init__(self, context):
        self.queue, self.stop = context.Queue(), context.Value("b", False)

    def put(self, value):
        self.queue.put(value)


def worker(options):
    options.gpus = options.gpus or 4
    nccl = Nccl()
    if not hasattr(nccl.library, "ncclCommSuspend") or nccl.library.ncclCommSuspend(None, MEMORY) == 5:
        client.skip("this NCCL cannot suspend (older than 2.29.7)")
    context = multiprocessing.get_context("spawn")
    results, barrier = Results(context), context.Barrier(options.gpus)
    ids = [nccl.unique_id().data() for _ in range(int(os.environ.get("COMMS", "2")))]
    ranks = [context.Process(target=rank_main, args=(r, options, ids, results, barrier), daemon=True) for r in range(options.gpus)]
    for one in ranks:
        one.start()
    every = sorted(results.queue.get(timeout=options.seconds) for _ in ranks)
    _, _, suspends, resumes, given, _, before, after = every[0]
    for name, times in (("suspend", suspends), ("resume", resumes)):
        print(f"NOTE {name}: median {statistics.median(times):.1f} ms, longest {max(times):.1f}", flush=True)
    size, unit = (1, "mappings") if nccl.cpu else (1 << 20, "MiB")
    print(f"NOTE {len(given)} rounds, given back: {given[0] // size} {unit} in the first, {given[-1] // size} in the last", flush=True)
    print(f"NOTE both calls: {before:.1f} us before, {after:.1f} after", flush=True)
    slack = 0 if nccl.cpu else SLACK
    client.report({"sums": all(one[1] for one in every), "memory is flat": all(one[5] <= slack for one in every),
                   "memory is given back": all(value > 0 for one in every for value in one[4])})
    for one in ranks:  # the real NCCL may not end
        one.join(5)


if __name__ == "__main__":
    client.compare(__doc__, worker, seconds=100)
