#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on two nodes of one GPU each, with Shunt preloaded and without: the same losses.

The nodes are ranks of one machine with different NCCL_HOSTID, which reach each other by TCP over the
loopback. DDP (pytorch_ddp.py) and tensor parallelism: a block of two linear layers, split over the ranks,
whose results are added forwards and whose gradients are added backwards. Each eagerly and as a CUDA
graph. Needs PyTorch with CUDA and two GPUs. The last line is `N passed, N failed`.
"""

import json
import os
import sys

import client
import pytorch_ddp

WIDTH, HIDDEN, BATCH, LAYERS = 256, 1024, 64, 2
NODES = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}


def make_block(rank, ranks, device):
    """This rank's columns of the first layer, and rows of the second one."""
    import torch

    def reduce(tensor):
        torch.distributed.all_reduce(tensor)
        return tensor

    class Enter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return reduce(gradient.contiguous().clone())

    class Leave(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return reduce(x.clone())

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    generator = torch.Generator().manual_seed(5)
    share = slice(rank * HIDDEN // ranks, (rank + 1) * HIDDEN // ranks)
    weights = []
    for _ in range(LAYERS):
        first = torch.randn(HIDDEN, WIDTH, generator=generator) / WIDTH**0.5
        second = torch.randn(WIDTH, HIDDEN, generator=generator) / HIDDEN**0.5
        weights.append([torch.nn.Parameter(first[share].to(device)),
                        torch.nn.Parameter(second[:, share].contiguous().to(device))])

    def forward(x):
        for first, second in weights:
            hidden = torch.nn.functional.gelu(Enter.apply(x) @ first.t())
            x = x + Leave.apply(hidden @ second.t())
        return x

    return forward, [w for pair in weights for w in pair]


def train_block(rank, ranks, local, steps, graphs):
    import torch

    device = torch.device("cuda", local)
    forward, weights = make_block(rank, ranks, device)
    generator = torch.Generator().manual_seed(9)
    data = torch.randn(BATCH, WIDTH, generator=generator).to(device)
    target = torch.randn(BATCH, WIDTH, generator=generator).to(device)
    optimizer = torch.optim.SGD(weights, lr=0.05)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(forward(data), target)
        loss.backward()
        optimizer.step()
        return loss

    losses, graph, loss = [], None, None
    for i in range(steps):
        if graphs and i == 3:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                loss = step()
        with torch.cuda.stream(side):
            if graph:
                graph.replay()
            else:
                loss = step()
        side.synchronize()
        losses.append(loss.item())
    return losses


def worker(kind, steps):
    what, mode = kind.split("-")
    local = int(os.environ["LOCAL_RANK"])
    os.environ["NCCL_HOSTID"] = f"node-{local}"
    if what == "ddp":
        pytorch_ddp.worker(steps, mode == "graphs")
        return
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(local)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    losses = train_block(dist.get_rank(), dist.get_world_size(), local, steps, mode == "graphs")
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, losses)
    if dist.get_rank() == 0:
        print("RESULT " + json.dumps({"losses": losses, "same": all(e == losses for e in every)}), flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print("DESTROYED", local, flush=True)


def main():
    p = client.parser(__doc__.splitlines()[0])
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--worker", help="run as a rank, under torchrun")
    options = p.parse_args()
    if options.worker:
        worker(options.worker, options.steps)
        return
    import torch

    if torch.cuda.device_count() < 2:
        print("SKIP: two GPUs are needed")
        sys.exit(77)
    os.environ.update(NODES)
    shunt = client.library(options)
    verdict = client.Verdict()
    for kind in ("ddp-eager", "ddp-graphs", "tensor-eager", "tensor-graphs"):
        if not client.wanted(options, kind):
            continue
        command = client.torchrun(2, __file__, "--worker", kind, "--steps", str(options.steps))
        plain = client.Run(command, options.seconds)
        preloaded = client.Run(command, options.seconds, preload=shunt)
        pytorch_ddp.compare(verdict, kind, plain, preloaded, 2)
    verdict.end()


if __name__ == "__main__":
    main()
