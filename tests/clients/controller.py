#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A controller sends one unique id over pipes to workers (threads, then processes), with Shunt and without.

Each worker makes a communicator of its own, then: all-reduce with sum, product, min, max and average; broadcast and
scatter of weights from worker 0, gather of results to it; all-gather and reduce-scatter; scatter and gather again by
sends and receives in a group. Needs two GPUs or more and CUDA's
runtime library, nothing else; with SHUNT_DEVICE=cpu it needs no GPU, and makes the calls that the CPU device
has. The last line is `N passed, N failed`.
"""

import ctypes
import multiprocessing
import os
import queue
import threading

import client
from nccl_ctypes import AVG, FLOAT32, MAX, MIN, PROD, SUM, Device, Nccl, UniqueId

COUNTS = (1, 1001, 20011)


def values(rank, count):
    """Small integers, whose product is exact over eight ranks, too."""
    return [float((i + rank) % 3 + 1) for i in range(count)]


def reduced(op, n, i):
    every = [float((i + r) % 3 + 1) for r in range(n)]
    product = 1.0
    for value in every:
        product *= value
    return {SUM: sum(every), PROD: product, MAX: max(every), MIN: min(every), AVG: sum(every) / n}[op]


def near(got, expected):
    return all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(got, expected))


def all_reduces(nccl, device, comm, rank, n):
    results = {}
    for name, op in (("sum", SUM), ("prod", PROD), ("max", MAX), ("min", MIN), ("avg", AVG)):
        good = True
        for count in COUNTS:
            memory, out = device.put(values(rank, count)), device.put([0.0] * count)
            nccl.ncclAllReduce(memory, out, ctypes.c_size_t(count), FLOAT32, op, comm, device.stream)
            good = good and near(device.get(out, count), [reduced(op, n, i) for i in range(count)])
            device.free(memory)
            device.free(out)
        results[f"all-reduce {name}"] = good
    return results


def offset(memory, floats):
    return ctypes.c_void_p((memory.value if isinstance(memory, ctypes.c_void_p) else ctypes.addressof(memory)) + 4 * floats)


def root_calls(nccl):
    """Whether the library has ncclScatter and ncclGather (NCCL 2.28 and later)."""
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    return nccl.cpu or version.value >= 22800


def collectives(nccl, device, comm, rank, n):
    """The collectives; worker 0 has the weights, and gets the results."""
    results = {}
    count = 1000
    one = ctypes.c_size_t(count)
    whole = device.put([float(i + rank) for i in range(n * count)])
    weights, own = device.put(values(rank, count)), device.put([0.0] * count)
    every = device.put([0.0] * (n * count))

    nccl.ncclBroadcast(weights, weights, one, FLOAT32, 0, comm, device.stream)
    results["broadcast"] = near(device.get(weights, count), values(0, count))
    device.set(weights, values(rank, count))
    nccl.ncclAllGather(weights, every, one, FLOAT32, comm, device.stream)
    results["all-gather"] = near(device.get(every, n * count), [x for r in range(n) for x in values(r, count)])
    nccl.ncclReduceScatter(whole, own, one, FLOAT32, SUM, comm, device.stream)
    results["reduce-scatter"] = near(device.get(own, count), [float(n * (rank * count + i) + n * (n - 1) // 2) for i in range(count)])
    if root_calls(nccl):
        at_root = rank == 0
        nccl.ncclScatter(whole if at_root else None, own, one, FLOAT32, 0, comm, device.stream)
        results["scatter, one call"] = near(device.get(own, count), [float(rank * count + i) for i in range(count)])
        nccl.ncclGather(own, every if at_root else None, one, FLOAT32, 0, comm, device.stream)
        results["gather, one call"] = not at_root or near(device.get(every, n * count),
                                                          [float(i) for i in range(n * count)])
    for memory in (whole, weights, own, every):
        device.free(memory)
    return results


def by_sends(nccl, device, comm, rank, n):
    """Scatter from worker 0 and gather to it, by sends and receives in one group."""
    results = {}
    count = 1000
    whole, own = device.put([float(i) for i in range(n * count)]), device.put([0.0] * count)
    nccl.ncclGroupStart()
    for r in range(n if rank == 0 else 0):
        nccl.ncclSend(offset(whole, r * count), ctypes.c_size_t(count), FLOAT32, r, comm, device.stream)
    nccl.ncclRecv(own, ctypes.c_size_t(count), FLOAT32, 0, comm, device.stream)
    nccl.ncclGroupEnd()
    results["scatter"] = near(device.get(own, count), [float(rank * count + i) for i in range(count)])

    back = device.put([0.0] * (n * count))
    nccl.ncclGroupStart()
    nccl.ncclSend(own, ctypes.c_size_t(count), FLOAT32, 0, comm, device.stream)
    for r in range(n if rank == 0 else 0):
        nccl.ncclRecv(offset(back, r * count), ctypes.c_size_t(count), FLOAT32, r, comm, device.stream)
    nccl.ncclGroupEnd()
    got = device.get(back, n * count)
    results["gather"] = rank != 0 or near(got, [float(i) for i in range(n * count)])
    for one in (whole, own, back):
        device.free(one)
    return results


def work(rank, n, receive, send):
    """The body of a worker: receives the id, returns its outcomes."""
    try:
        nccl = Nccl()
        device = Device(nccl, rank)
        comm = nccl.init(n, UniqueId.of(receive()), rank)
        results = all_reduces(nccl, device, comm, rank, n)
        results.update(collectives(nccl, device, comm, rank, n))
        if not nccl.cpu:
            results.update(by_sends(nccl, device, comm, rank, n))
        nccl.ncclCommDestroy(comm)
        send(results)
    except Exception as error:
        send({"worker": f"{type(error).__name__}: {error}"})


def process_main(rank, n, pipe):
    work(rank, n, pipe.recv, pipe.send)


def collect(shape, n, receive, to_workers):
    """The controller's part."""
    data = Nccl().unique_id().data()
    for send in to_workers:
        send(data)
    every = [receive[r]() for r in range(n)]
    for result in every:
        if "worker" in result:
            print(f"NOTE {shape}: {result['worker']}", flush=True)
    names = sorted({name for result in every for name in result})
    return {f"{shape}: {name}": all(result.get(name) is True for result in every) for name in names}


def with_processes(n, seconds):
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(n)]
    workers = [context.Process(target=process_main, args=(r, n, pipes[r][1])) for r in range(n)]
    for one in workers:
        one.start()

    def receive(pipe):
        return pipe.recv() if pipe.poll(seconds) else {"worker": "no answer"}

    results = collect("processes", n, [lambda p=p: receive(p) for p, _ in pipes], [p.send for p, _ in pipes])
    for one in workers:
        one.join(5)
        one.kill()
    return results


def with_threads(n, seconds):
    ids, answers = [queue.Queue() for _ in range(n)], [queue.Queue() for _ in range(n)]
    workers = [threading.Thread(target=work, args=(r, n, ids[r].get, answers[r].put), daemon=True) for r in range(n)]
    for one in workers:
        one.start()

    def receive(answer):
        try:
            return answer.get(timeout=seconds)
        except queue.Empty:
            return {"worker": "no answer"}

    return collect("threads", n, [lambda a=a: receive(a) for a in answers], [i.put for i in ids])


def worker(options):
    n = options.gpus or 4
    for shape, run in (("processes", with_processes), ("threads", with_threads)):
        if client.wanted(options, shape):
            client.report(run(n, options.seconds / 3))
    os._exit(0)  # a hanging thread must not keep the process alive


if __name__ == "__main__":
    client.compare(__doc__, worker)
