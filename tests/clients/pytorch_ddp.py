#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DDP training of a small network under torchrun, with Shunt preloaded and without: the same losses.

Needs PyTorch with CUDA and two GPUs or more. For each of eager and CUDA graphs, training runs twice.
Ranks add in another order than NCCL's rings, so the losses agree within fp32 rounding accumulated
over the steps (relative 1e-4), not bit for bit. Each rank's parameters must agree bit for bit with
rank 0's. The last line is `N passed, N failed`.
"""

import json
import os
import sys

import client

TOLERANCE = 1e-4
WARMUP = 11  # needed before a capture (DDP's documentation): the first iterations rebuild DDP's buckets


def make(device):
    import torch

    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(),
        torch.nn.Linear(256, 8))
    return model.to(device)


def batches(rank, count, device):
    import torch

    generator = torch.Generator().manual_seed(100 + rank)
    inputs = torch.randn(count, 32, 64, generator=generator)
    teacher = torch.randn(64, 8, generator=torch.Generator().manual_seed(1)) / 8  # a target that can be learned, so that the loss falls
    targets = inputs @ teacher
    return inputs.to(device), targets.to(device)


def train(rank, local, steps, graphs):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", local)
    inputs, targets = batches(rank, steps, device)
    static_input, static_target = inputs[0].clone(), targets[0].clone()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # a DDP to be captured must not be made on the default stream
        model = DistributedDataParallel(make(device), device_ids=[local])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(static_input), static_target)
        loss.backward()
        optimizer.step()
        return loss

    def load(i):
        static_input.copy_(inputs[i])
        static_target.copy_(targets[i])

    torch.cuda.synchronize()
    losses, graph, loss = [], None, None
    for i in range(steps):
        if graphs and i == WARMUP:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                loss = step()
        with torch.cuda.stream(side):
            load(i)
            if graph:
                graph.replay()
            else:
                loss = step()
        side.synchronize()
        losses.append(loss.item())
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    return losses, parameters


def worker(steps, graphs):
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # a watchdog must not query events in a capture
    import torch
    import torch.distributed as dist

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank = dist.get_rank()
    losses, parameters = train(rank, local, steps, graphs)
    first = parameters.clone()
    dist.broadcast(first, 0)
    same = torch.tensor([int(torch.equal(first, parameters))], device="cuda")
    dist.all_reduce(same, op=dist.ReduceOp.MIN)
    mean = torch.tensor(losses, dtype=torch.float64, device="cuda")
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if rank == 0:
        for i, value in enumerate(mean.tolist()):
            print(f"step {i} loss {value:.9g}")
        print("RESULT " + json.dumps({"losses": mean.tolist(), "same": bool(same.item())}), flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print("DESTROYED", rank, flush=True)


def result(run):
    lines = run.lines("RESULT ")
    return json.loads(lines[0]) if lines else None


def compare(verdict, name, plain, preloaded, gpus):
    for what, run in (("plain", plain), ("preloaded", preloaded)):
        ended = len(run.lines("DESTROYED"))
        verdict.check(run.status == 0, f"{name}, {what}: status {run.status}\n{run.text[-3000:]}")
        verdict.check(ended == gpus, f"{name}, {what}: destroy_process_group returned on {ended} ranks of {gpus}")
    a, b = result(plain), result(preloaded)
    if not a or not b:
        verdict.check(False, f"{name}: no result")
        return
    worst = max(abs(x - y) / max(abs(x), 1e-12) for x, y in zip(a["losses"], b["losses"]))
    print(f"{name}: last loss {a['losses'][-1]:.9g} plain, {b['losses'][-1]:.9g} with Shunt; "
          f"worst relative difference {worst:.3g}; taken {preloaded.taken}, forwarded {preloaded.forwarded}")
    verdict.check(worst <= TOLERANCE, f"{name}: the losses differ by {worst:.3g}")
    verdict.check(b["same"], f"{name}: ranks hold different parameters with Shunt")
    verdict.check(b["losses"][-1] < b["losses"][0], f"{name}: the loss did not fall")
    verdict.check(bool(preloaded.taken), f"{name}: SHUNT_STATS shows no call taken")
    verdict.check(plain.taken is None, f"{name}: the plain run was not plain")


def main():
    p = client.parser(__doc__.splitlines()[0])
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--worker", choices=["eager", "graphs"], help="run as a rank, under torchrun")
    options = p.parse_args()
    if options.worker:
        worker(options.steps, options.worker == "graphs")
        return
    import torch

    gpus = options.gpus or torch.cuda.device_count()
    if gpus < 2:
        print("SKIP: two GPUs are needed")
        sys.exit(77)
    shunt = client.library(options)
    verdict = client.Verdict()
    for mode in ("eager", "graphs"):
        command = client.torchrun(gpus, __file__, "--worker", mode, "--steps", str(options.steps))
        plain = client.Run(command, options.seconds)
        preloaded = client.Run(command, options.seconds, preload=shunt)
        compare(verdict, mode, plain, preloaded, gpus)
    verdict.end()


if __name__ == "__main__":
    main()
