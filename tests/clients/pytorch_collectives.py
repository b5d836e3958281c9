#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All of PyTorch's collectives and messages, and programs and pipelines of them, with Shunt and without.

Each form (pytorch_forms.py) with every type, operator and random sizes; random programs on several process groups at
once beside matrix products; CUDA graphs beside eager calls; a GPipe and a 1F1B pipeline, a stage on each rank. Results
equal the reference bit by bit; the pipelines' equal those of the undivided model within rounding. Needs PyTorch
with CUDA and two GPUs or more. The last line is `N passed, N failed`.
"""

import random

import client
from pytorch_forms import Forms, Group, any_form, check_forms

CALLS, ROUNDS, REPLAYS, MICROBATCHES, WIDTH = 250, 4, 20, 8, 512


def program(t, groups, seed):
    """Random calls, with a stream for each group, beside matrix products on the first stream."""
    torch, plan = t.torch, random.Random(seed)
    a = torch.randn(1024, 1024, device=t.device, generator=torch.Generator(t.device).manual_seed(seed))
    first = a @ a
    streams = [torch.cuda.Stream() if t.cuda else None for _ in groups]
    t.synchronize()
    pairs, products = [], []
    for i in range(CALLS):
        at, t.later = plan.randrange(len(groups)), plan.random() < 0.5
        t.dice, t.seed = random.Random(seed * CALLS + i), 100 * i
        if plan.random() < 0.3:
            products.append(a @ a)
        if groups[at].me is not None:
            with torch.cuda.stream(streams[at]):  # no effect if it is None
                pairs += any_form(t, groups[at])
        if i % 50 == 49:
            t.finish()
            if not t.equal(pairs) or not all(torch.equal(first, product) for product in products):
                return False
            pairs, products = [], []
    t.later = False
    return True


def graphs(t, g, other):
    """A graph of collectives and messages, replayed between eager calls of the same and of another group."""
    torch, dist, n, me = t.torch, t.dist, g.size, g.me
    count = 3000
    whole, piece = torch.empty(count * n, device=t.device), torch.empty(count, device=t.device)
    outs = [torch.empty_like(whole), torch.empty_like(piece), torch.empty_like(whole), torch.empty_like(piece),
            torch.empty_like(piece), torch.empty_like(whole)]

    def work():
        dist.all_gather_into_tensor(outs[0], piece, group=g.handle)
        dist.reduce_scatter_tensor(outs[1], whole, group=g.handle)
        dist.all_to_all_single(outs[2], whole, group=g.handle)
        for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, piece, (me + 1) % n, g.handle),
                                               dist.P2POp(dist.irecv, outs[3], (me - 1) % n, g.handle)]):
            request.wait()
        outs[4].copy_(piece)
        dist.broadcast(outs[4], n - 1, group=g.handle)
        outs[5].copy_(whole)
        dist.all_reduce(outs[5], group=g.handle)

    def inputs(k):
        t.seed = 7000 + k
        wholes = [t.numbers(r, count * n, torch.float32, dist.ReduceOp.SUM) for r in range(n)]
        return wholes, [x[:count] + 1 for x in wholes]

    work()
    t.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    for k in range(REPLAYS):
        wholes, pieces = inputs(k)
        whole.copy_(wholes[me])
        piece.copy_(pieces[me])
        for out in outs:
            out.fill_(float("nan"))
        t.dice = random.Random(k)
        pairs = any_form(t, g)
        graph.replay()
        pairs += any_form(t, other) + any_form(t, g)
        here, total = slice(me * count, (me + 1) * count), sum(wholes)
        pairs += zip(outs, (torch.cat(pieces), total[here], torch.cat([x[here] for x in wholes]), pieces[me - 1],
                            pieces[n - 1], total))
        t.finish()
        if not t.equal(pairs):
            return False
    return True


def blocks(t, stages):
    """The layers of each stage, equal on all ranks."""
    torch = t.torch
    torch.manual_seed(3)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)).to(t.device)
            for _ in range(stages)]


def pipeline(t, name):
    """Three steps of pipelined training; losses, gradients and weights must be those of the undivided model."""
    from torch.distributed import pipelining

    torch = t.torch
    loss_of = torch.nn.functional.mse_loss
    stages, alone = blocks(t, t.size), torch.nn.Sequential(*blocks(t, t.size))
    mine = stages[t.rank]
    stage = pipelining.PipelineStage(mine, t.rank, t.size, t.device)
    schedule = getattr(pipelining, name)(stage, MICROBATCHES, loss_fn=loss_of)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (mine, alone)]
    generator = torch.Generator(t.device).manual_seed(11)
    good = True
    for _ in range(3):
        x, y = (torch.randn(64 * MICROBATCHES, WIDTH, device=t.device, generator=generator) for _ in range(2))
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses, expected = [], []
        if t.rank == 0:
            schedule.step(x)
        elif t.rank == t.size - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        for a, b in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
            loss = loss_of(alone(a), b)
            (loss / MICROBATCHES).backward()
            expected.append(loss.detach())
        good = good and (t.rank < t.size - 1 or torch.allclose(torch.stack(losses), torch.stack(expected), rtol=1e-5))
        for p, q in zip(mine.parameters(), alone[t.rank].parameters()):
            good = good and torch.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-7)
        for optimizer in optimizers:
            optimizer.step()
    return good


def worker(options):
    try:
        t = Forms(options)
    except ImportError as error:
        client.skip(f"no PyTorch: {error}")
    everyone = list(range(t.size))
    groups = [Group(t, everyone) for _ in range(3)]
    if t.size > 2:
        groups += [Group(t, everyone[:-1]), Group(t, everyone[1::2] if t.size > 3 else everyone[1:])]
    t.torch.backends.cuda.matmul.allow_tf32 = False
    check_forms(t, groups[0], ROUNDS)
    for seed in range(1, 5):
        t.check(f"program {seed}", lambda: program(t, groups, seed))
    if t.cuda:
        t.check("graphs", lambda: graphs(t, groups[0], groups[1]))
    for name in ("ScheduleGPipe", "Schedule1F1B"):
        t.check(name, lambda: pipeline(t, name))
    t.dist.destroy_process_group()


if __name__ == "__main__":
    client.compare(__doc__, worker, seconds=80, torchrun_ranks=True)
