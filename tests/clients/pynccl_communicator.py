#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The communicators of vLLM and SGLang, which call NCCL on PyTorch's tensors, in programs like their own tests.

All-reduce, all-gather and reduce-scatter with and without sizes (groups of broadcasts and of reduces), broadcast,
reduce, scatter, sends and receives alone and in groups, all of it eagerly and in a CUDA graph; every type, random sizes,
results known bit by bit. PYNCCL names a folder with the files of pynccl_wrappers.py and of

    scripts/wheel_files.py vllm FOLDER device_communicators/pynccl.py
    scripts/wheel_files.py sglang FOLDER srt/distributed/device_communicators/pynccl.py

Small stand-ins replace their other imports. One process a rank, with PyTorch; on two GPUs or more, or
on the CPU device. The last line is `N passed, N failed`.
"""

import contextlib
import types

import client
import pynccl_wrappers
from pytorch_forms import Forms

COMMUNICATORS = {name: (variable, (*files, files[-1].replace("pynccl_wrapper", "pynccl")))
                 for name, (variable, files) in pynccl_wrappers.PROGRAMS.items()}
ROUNDS = 3


def stand_ins(t):
    torch = t.torch
    pynccl_wrappers.stand_ins()
    stream = torch.cuda.current_stream
    if not t.cuda:
        stream = lambda: types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
        torch.cuda.Stream = stream
        torch.cuda.device = torch.cuda.stream = torch.accelerator.device_index = lambda _: contextlib.nullcontext()
    stateless = type("StatelessProcessGroup", (), {})
    pynccl_wrappers.stand_in("vllm.distributed.utils", StatelessProcessGroup=stateless)
    pynccl_wrappers.stand_in("vllm.utils.torch_utils", current_stream=stream)
    pynccl_wrappers.stand_in("sglang.srt.distributed.utils", StatelessProcessGroup=stateless)
    pynccl_wrappers.stand_in("sglang.srt.utils")
    pynccl_wrappers.stand_in("sglang.srt.utils.common", get_current_device_stream_fast=stream)


# ---- The programs: each makes its inputs, and returns its calls and the pairs (got, wanted) -----------------------


def terms_of(t, dtype, count, op=None):
    t.seed += 1
    op = op or t.dist.ReduceOp.SUM
    return [t.numbers(r, count, dtype, op) for r in range(t.size)]


def all_reduce(t, comm, dtype):
    terms = terms_of(t, dtype, t.count())
    out = t.empty(len(terms[0]), dtype)
    call = getattr(comm, "outplace_all_reduce", comm.all_reduce)
    return lambda: call(terms[t.rank], out), [(out, t.reduced_to(terms, t.dist.ReduceOp.SUM))]


def all_gather(t, comm, dtype):
    terms = terms_of(t, dtype, t.count())
    out = t.empty(len(terms[0]) * t.size, dtype)
    return lambda: comm.all_gather(out, terms[t.rank]), [(out, t.torch.cat(terms))]


def sizes_of(t):
    return [t.count(least=0, most=16) for _ in range(t.size)]


def all_gather_sizes(t, comm, dtype):
    sizes = sizes_of(t)
    t.seed += 1
    terms = [t.bits(r, size, dtype) for r, size in enumerate(sizes)]
    out = t.empty(sum(sizes), dtype)
    call = getattr(comm, "all_gatherv", comm.all_gather)
    return lambda: call(out, terms[t.rank], sizes=sizes), [(out, t.torch.cat(terms))]


def reduce_scatter(t, comm, dtype):
    count = t.count()
    terms, here = terms_of(t, dtype, count * t.size), slice(t.rank * count, (t.rank + 1) * count)
    out = t.empty(count, dtype)
    return (lambda: comm.reduce_scatter(out, terms[t.rank]),
            [(out, t.reduced_to([x[here] for x in terms], t.dist.ReduceOp.SUM))])


def reduce_scatter_sizes(t, comm, dtype):
    sizes = sizes_of(t)
    terms = terms_of(t, dtype, sum(sizes))
    out = t.empty(sizes[t.rank], dtype)
    call = getattr(comm, "reduce_scatterv", comm.reduce_scatter)
    return (lambda: call(out, terms[t.rank], sizes=sizes),
            [(out, t.reduced_to([x.split(sizes)[t.rank] for x in terms], t.dist.ReduceOp.SUM))])


def broadcast(t, comm, dtype):
    t.seed += 1
    root = t.dice.randrange(t.size)
    sent = t.bits(root, t.count(), dtype)
    x = sent.clone() if t.rank == root else t.empty(len(sent), dtype)
    return lambda: comm.broadcast(x, root), [] if t.rank == root else [(x, sent)]


def reduce(t, comm, dtype):
    terms, root = terms_of(t, dtype, t.count()), t.dice.randrange(t.size)
    out = t.empty(len(terms[0]), dtype)
    wanted = t.reduced_to(terms, t.dist.ReduceOp.SUM)
    return lambda: comm.reduce(out, terms[t.rank], root), [(out, wanted)] if t.rank == root else []


def scatter(t, comm, dtype):
    sizes, root = sizes_of(t), t.dice.randrange(t.size)
    t.seed += 1
    whole = t.bits(root, sum(sizes), dtype)
    out = t.empty(sizes[t.rank], dtype)
    return lambda: comm.scatter(out, whole, sizes, root), [(out, whole.split(sizes)[t.rank])]


def ring(t, comm, dtype):
    """A ring as of pipeline stages: the even ranks send first."""
    t.seed += 1
    count, n = t.count(), t.size
    own, out = t.bits(t.rank, count, dtype), t.empty(count, dtype)
    steps = [lambda: comm.send(own, (t.rank + 1) % n), lambda: comm.recv(out, (t.rank - 1) % n)]
    if t.rank % 2:
        steps.reverse()
    return lambda: [step() for step in steps], [(out, t.bits((t.rank - 1) % n, count, dtype))]


def group(t, comm, dtype):
    """A message from every rank to every rank, and an all-reduce, in one group."""
    t.seed += 1
    n, counts = t.size, [t.count(most=15) for _ in range(t.size)]  # number of elements by sender
    sent = [t.bits(r, counts[r], dtype) for r in range(n)]
    outs = [t.empty(count, dtype) for count in counts]
    reduce_call, pairs = all_reduce(t, comm, t.torch.float32)

    def call():
        comm.group_start()
        for other in range(n):
            if other != t.rank:
                comm.send(sent[t.rank], other)
                comm.recv(outs[other], other)
        reduce_call()
        comm.group_end()

    return call, pairs + [(outs[r], sent[r]) for r in range(n) if r != t.rank]


def all_to_all_single(t, comm, dtype):
    t.seed += 1
    count = t.count(most=15)
    sent = [t.bits(r, count * t.size, dtype) for r in range(t.size)]
    out = t.empty(count * t.size, dtype)
    return (lambda: comm.all_to_all_single(out, sent[t.rank]),
            [(out, t.torch.cat([x.chunk(t.size)[t.rank] for x in sent]))])


SUMS = (all_reduce, all_gather, reduce_scatter, reduce_scatter_sizes, reduce)
MOVES = (all_gather_sizes, broadcast, scatter, ring, group, all_to_all_single)


def fitting(t, comm):
    """The pairs of a program and a type that this communicator supports."""
    torch = t.torch
    types_known = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                   torch.float64]
    for program in SUMS + MOVES:
        if program in (reduce, scatter, all_to_all_single) and not hasattr(comm, program.__name__):
            continue
        for dtype in types_known:
            yield program, dtype


def eager(t, program, comm, dtype):
    lots = [program(t, comm, dtype) for _ in range(ROUNDS)]
    for call, _ in lots:
        call()
    t.synchronize()
    return all(t.equal(pairs) for _, pairs in lots)


def captured(t, comm):
    lots = [program(t, comm, dtype) for program, dtype in fitting(t, comm) if program is not scatter]
    graph = t.torch.cuda.CUDAGraph()
    t.synchronize()
    with t.torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for call, _ in lots:
            call()
    for _ in range(3):
        for _, pairs in lots:
            for got, _ in pairs:
                got.view(t.torch.uint8).fill_(0x5A)
        graph.replay()
        t.synchronize()
        if not all(t.equal(pairs) for _, pairs in lots):
            return False
    return True


def large(t, comm):
    """A message of 64 MB, as in vLLM's own test."""
    x = t.torch.ones(16 << 20, device=t.device)
    out = t.torch.empty_like(x)
    getattr(comm, "outplace_all_reduce", comm.all_reduce)(x, out)
    t.synchronize()
    return bool((out == t.size).all())


def worker(options):
    try:
        t = Forms(options)
    except ImportError as error:
        client.skip(f"no PyTorch: {error}")
    stand_ins(t)
    for name, module in pynccl_wrappers.programs(COMMUNICATORS):
        comm = module.PyNcclCommunicator(t.verdicts, t.device)
        t.check(f"{name} available", lambda: comm.available)
        with comm.change_state(enable=True) if hasattr(comm, "change_state") else contextlib.nullcontext():
            for program, dtype in fitting(t, comm):
                t.check(f"{name} {program.__name__} {str(dtype)[6:]}", lambda: eager(t, program, comm, dtype))
            t.check(f"{name} large", lambda: large(t, comm))
            if t.cuda:
                t.check(f"{name} graph", lambda: captured(t, comm))
        if hasattr(comm, "destroy"):
            t.check(f"{name} destroy", lambda: comm.destroy() is None)
    t.dist.destroy_process_group()


if __name__ == "__main__":
    client.compare(__doc__, worker, seconds=60, torchrun_ranks=True)
