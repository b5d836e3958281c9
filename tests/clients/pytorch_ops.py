#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's collectives with Shunt preloaded and without, each result against a reference on the CPU.

Needs PyTorch with CUDA and two GPUs or more. Every rank can make every rank's input, so the expected
result needs no exchange. Floats are compared with an fp64 reference within
(n + 3) * eps * sum |x|, integers exactly. The last line is `N passed, N failed`: the checks of the
preloaded run, and for each check whether the plain run agrees.
"""

import os
import sys
import traceback

import client

SIZES = (1, 3, 17, 1000, 65537, 1 << 20)


class Ranks:
    """Inputs, references and the checks of one rank."""

    def __init__(self, options):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.options = torch, dist, options
        self.local = int(os.environ["LOCAL_RANK"])
        self.cuda = torch.cuda.is_available()  # without a GPU all calls use gloo, to test these scripts
        self.device = torch.device("cuda", self.local) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
            dist.init_process_group("cpu:gloo,cuda:nccl", device_id=self.device)
        else:
            dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.verdicts = dist.new_group(backend="gloo")
        self.seed = 0

    def input(self, rank, count, dtype, seed):
        torch = self.torch
        generator = torch.Generator().manual_seed(seed * 1000 + rank)
        if dtype == torch.bool:
            return torch.randint(0, 2, (count,), generator=generator).to(dtype)
        if not dtype.is_floating_point:
            low = 0 if dtype == torch.uint8 else -5
            return torch.randint(low, 6, (count,), generator=generator).to(dtype)
        return (torch.rand(count, generator=generator, dtype=torch.float64) * 2 - 1).to(dtype)

    def inputs(self, count, dtype, ranks=None):
        self.seed += 1
        return [self.input(r, count, dtype, self.seed) for r in (ranks or range(self.size))]

    def reduced(self, tensors, op):
        """The expected value and the largest allowed error, both fp64 (integers: int64, no error)."""
        torch, ops = self.torch, self.dist.ReduceOp
        dtype, n = tensors[0].dtype, len(tensors)
        if dtype == torch.bool:
            wide = torch.stack([t.to(torch.int64) for t in tensors])
            return (wide.amin(0) if op in (ops.MIN, ops.PRODUCT) else wide.amax(0)), None
        wide = torch.stack([t.to(torch.float64 if dtype.is_floating_point else torch.int64) for t in tensors])
        if op == ops.MIN:
            return wide.amin(0), None
        if op == ops.MAX:
            return wide.amax(0), None
        value = wide.prod(0) if op == ops.PRODUCT else wide.sum(0)
        if not dtype.is_floating_point:
            if op == ops.AVG:
                value = torch.div(value.to(dtype).to(torch.int64), n, rounding_mode="trunc")
            return value.to(dtype).to(torch.int64), None
        eps = torch.finfo(dtype).eps
        magnitude = value.abs() * n if op == ops.PRODUCT else wide.abs().sum(0)
        if op == ops.AVG:
            value, magnitude = value / n, magnitude / n
        smallest = torch.finfo(dtype).smallest_normal * eps * n
        return value, (n + 3) * eps * magnitude + smallest

    def right(self, got, expected):
        value, bound = expected
        got = got.cpu()
        if bound is None:
            return bool((got.to(value.dtype) == value).all())
        return bool(((got.to(self.torch.float64) - value).abs() <= bound).all())

    def check(self, name, body):
        """Record a check's result. Ranks agree on each over gloo, so that a failing rank does not leave the
        others waiting."""
        if not client.wanted(self.options, name):
            return
        try:
            good, why = bool(body()), ""
        except Exception:  # any error of a library is a failed check
            good, why = False, traceback.format_exc(limit=2)
        self.synchronize()
        both = [None] * self.size
        self.dist.all_gather_object(both, (good, why), group=self.verdicts)
        if self.rank == 0:
            client.report({name: all(g for g, _ in both)})
        for r, (g, text) in enumerate(both):
            if self.rank == 0 and not g:
                print(f"rank {r}: {name} failed {text}", flush=True)

    def synchronize(self):
        if self.cuda:
            self.torch.cuda.synchronize()


def all_reduce_checks(t):
    torch, dist = t.torch, t.dist
    ops = dist.ReduceOp
    dtypes = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
              torch.float64, torch.bool]
    dtypes += [d for d in (torch.float8_e4m3fn, torch.float8_e5m2) if torch.cuda.get_device_capability() >= (9, 0)]
    for dtype in dtypes:
        for op in (ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX, ops.AVG):
            if dtype == torch.bool and op == ops.AVG:
                continue  # PyTorch refuses this operator
            name = f"all_reduce {str(dtype)[6:]} {op.name if hasattr(op, 'name') else op}"

            def body(dtype=dtype, op=op):
                for count in SIZES[:-1]:
                    tensors = t.inputs(count, dtype)
                    x = tensors[t.rank].to(t.device)
                    dist.all_reduce(x, op=op)
                    if not t.right(x, t.reduced(tensors, op)):
                        return False
                return True

            t.check(name, body)

    def large():
        tensors = t.inputs(SIZES[-1] * 8, torch.bfloat16)
        x = tensors[t.rank].to(t.device)
        dist.all_reduce(x)
        return t.right(x, t.reduced(tensors, ops.SUM))

    def premultiplied():
        tensors = t.inputs(1000, torch.float32)
        x = tensors[t.rank].to(t.device)
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
        return t.right(x, t.reduced([0.5 * v for v in tensors], ops.SUM))

    def premultiplied_tensor():
        tensors = t.inputs(1000, torch.float32)
        x = tensors[t.rank].to(t.device)
        scalar = torch.full((1,), 0.25, device=t.device)
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(scalar))
        return t.right(x, t.reduced([0.25 * v for v in tensors], ops.SUM))

    def unaligned():
        for start in range(1, 9):
            tensors = t.inputs(1001 + start, torch.bfloat16)
            x = tensors[t.rank].to(t.device)
            dist.all_reduce(x[start:])
            if not t.right(x[start:], t.reduced([v[start:] for v in tensors], ops.SUM)):
                return False
        return True

    def asynchronous():
        lots = [t.inputs(1 + 371 * i, torch.float32) for i in range(40)]
        xs = [lot[t.rank].to(t.device) for lot in lots]
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        for work in works:
            work.wait()
        return all(t.right(x, t.reduced(lot, ops.SUM)) for x, lot in zip(xs, lots))

    def coalesced():
        lots = [t.inputs(5 + 100 * i, torch.float16) for i in range(20)]
        xs = [lot[t.rank].to(t.device) for lot in lots]
        with dist._coalescing_manager(device=t.device, async_ops=True) as manager:
            for x in xs:
                dist.all_reduce(x)
        manager.wait()
        return all(t.right(x, t.reduced(lot, ops.SUM)) for x, lot in zip(xs, lots))

    def captured():
        tensors = t.inputs(4000, torch.bfloat16)
        x = tensors[t.rank].to(t.device)
        y = torch.empty_like(x)
        y.copy_(x)
        dist.all_reduce(y)  # makes the communicator before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y.copy_(x)
            dist.all_reduce(y)
        for _ in range(50):
            y.zero_()
            graph.replay()
            z = x.clone()
            dist.all_reduce(z)
            if not torch.equal(y, z):
                return False
        return t.right(y, t.reduced(tensors, ops.SUM))

    def streams():
        side = [torch.cuda.Stream() for _ in range(3)]
        lots = [t.inputs(777, torch.float32) for _ in range(30)]
        xs = [lot[t.rank].to(t.device) for lot in lots]
        torch.cuda.synchronize()
        for i, x in enumerate(xs):
            with torch.cuda.stream(side[i % 3]):
                dist.all_reduce(x)
        torch.cuda.synchronize()
        return all(t.right(x, t.reduced(lot, ops.SUM)) for x, lot in zip(xs, lots))

    for name, body in (("large", large), ("premul_sum", premultiplied), ("premul_sum tensor", premultiplied_tensor),
                       ("unaligned", unaligned), ("async_op", asynchronous), ("coalesced", coalesced),
                       ("captured", captured), ("streams", streams)):
        t.check(f"all_reduce {name}", body)


def other_checks(t):
    torch, dist = t.torch, t.dist
    n, rank = t.size, t.rank

    def mixed():
        """Other collectives between all-reduces on the same communicator."""
        for count in (16, 1000, 100000):
            tensors = t.inputs(count, torch.float32)
            own = tensors[rank].to(t.device)
            gathered = torch.empty(n * count, device=t.device)
            reduced = own.clone()
            dist.all_reduce(reduced)
            dist.all_gather_into_tensor(gathered, own)
            again = own.clone()
            dist.all_reduce(again)
            everything = torch.cat(tensors)
            scattered = torch.empty(count, device=t.device)
            dist.reduce_scatter_tensor(scattered, gathered)
            root = tensors[n - 1].to(t.device) if rank == n - 1 else torch.zeros(count, device=t.device)
            dist.broadcast(root, n - 1)
            left = torch.empty(count, device=t.device)
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, (rank + 1) % n),
                                            dist.P2POp(dist.irecv, left, (rank - 1) % n)])
            for work in works:
                work.wait()
            swapped = torch.empty(n * count, device=t.device)
            dist.all_to_all_single(swapped, gathered)
            dist.barrier()
            sums = t.reduced(tensors, dist.ReduceOp.SUM)
            piece = everything[rank * count:(rank + 1) * count]
            if not (t.right(reduced, sums) and torch.equal(reduced, again)
                    and torch.equal(gathered.cpu(), everything) and torch.allclose(scattered.cpu(), n * piece)
                    and torch.equal(root.cpu(), tensors[n - 1]) and torch.equal(left.cpu(), tensors[(rank - 1) % n])
                    and torch.equal(swapped.cpu(), piece.repeat(n))):
                return False
        return True

    def subgroups():
        groups = [[0, 1], list(range(0, n, 2)), list(range(1, n)), list(range(n - 1, -1, -1))]
        for members in groups:
            group = dist.new_group(members)
            if rank in members:
                ordered = sorted(members)
                tensors = t.inputs(3000, torch.float32, ordered)
                x = tensors[ordered.index(rank)].to(t.device)
                dist.all_reduce(x, group=group)
                if not t.right(x, t.reduced(tensors, dist.ReduceOp.SUM)):
                    return False
            else:
                t.seed += 1
        return True

    def again():
        for _ in range(10):
            group = dist.new_group(list(range(n)))
            tensors = t.inputs(500, torch.bfloat16)
            x = tensors[rank].to(t.device)
            dist.all_reduce(x, group=group)
            if not t.right(x, t.reduced(tensors, dist.ReduceOp.SUM)):
                return False
            torch.cuda.synchronize()
            dist.destroy_process_group(group)
        return True

    t.check("mixed collectives", mixed)
    t.check("subgroups", subgroups)
    t.check("groups made and destroyed", again)


def worker(options):
    ranks = Ranks(options)
    all_reduce_checks(ranks)
    other_checks(ranks)
    ranks.dist.destroy_process_group()
    print("DESTROYED", ranks.rank, flush=True)


def main():
    p = client.parser(__doc__.splitlines()[0])
    p.set_defaults(seconds=45)
    p.add_argument("--worker", action="store_true", help="run as a rank, under torchrun")
    options = p.parse_args()
    if options.worker:
        worker(options)
        return
    gpus = options.gpus or client.gpus_here()
    if gpus < 2:
        print("SKIP: two GPUs are needed")
        sys.exit(77)
    shunt = client.library(options)
    command = client.torchrun(gpus, __file__, "--worker", f"--only={options.only}")
    runs = {"plain": client.Run(command, options.seconds),
            "preloaded": client.Run(command, options.seconds, preload=shunt)}
    verdict = client.Verdict()
    results = {}
    for name, run in runs.items():
        results[name] = run.results()
        ended = len(run.lines("DESTROYED"))
        verdict.check(run.status == 0 and results[name] and ended == gpus,
                      f"{name}: status {run.status}, {ended} ranks of {gpus} ended\n{run.text[-4000:]}")
    for name, good in results["preloaded"].items():
        print(f"{'ok' if good else 'FAILED'} {name}")
        plain = results["plain"].get(name)
        verdict.check(good or plain is False, f"{name} with Shunt, plain {plain}")
    verdict.check(set(results["plain"]) == set(results["preloaded"]), "both runs made the same checks")
    print(f"taken {runs['preloaded'].taken}, forwarded {runs['preloaded'].forwarded}")
    verdict.check(bool(runs["preloaded"].taken), "SHUNT_STATS shows no call taken")
    verdict.end()


if __name__ == "__main__":
    main()
