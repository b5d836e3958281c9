# SPDX-License-Identifier: Apache-2.0
"""decode_models.py - the models of decode-bench: a rank's part of the weights, and one step of decoding.

Weights are random, seeded by the rank alone, so both sets of ranks have the same. Parts without weights or exchanges
(rotary positions, sampling) are left out.
"""

import math

import expert_calls


class Model:
    def __init__(self, shape, rank, ranks, device):
        import torch

        self.shape, self.rank, self.ranks, self.device = shape, rank, ranks, device
        self.type = torch.float32 if device.type == "cpu" else torch.bfloat16  # gloo may lack bfloat16
        self.generator = torch.Generator(device=device).manual_seed(1 + rank)
        self.norm = torch.ones(shape["hidden"], device=device, dtype=self.type)

    def random(self, *sizes):
        """A random matrix, scaled so that products with it keep the size of their input."""
        import torch

        whole = torch.randn(sizes, generator=self.generator, device=self.device, dtype=self.type)
        return whole.mul_(1 / math.sqrt(sizes[-1]))

    def attention(self):
        hidden, width = self.shape["hidden"], self.shape["width"]
        return {"qkv": self.random((self.heads + 2 * self.groups) * width, hidden),
                "out": self.random(hidden, self.heads * width)}

    def caches(self, batch):
        sizes = (batch, self.groups, self.shape["context"], self.shape["width"])
        return [(self.random(*sizes), self.random(*sizes)) for _ in self.layers]

    def attend(self, x, layer, keys, values):
        import torch.nn.functional as F

        batch, width = x.shape[0], self.shape["width"]
        cuts = [self.heads * width, self.groups * width, self.groups * width]
        query, key, value = F.linear(self.normed(x), layer["qkv"]).split(cuts, dim=-1)
        keys[:, :, -1] = key.view(batch, self.groups, width)
        values[:, :, -1] = value.view(batch, self.groups, width)
        # The heads of a group share keys and values, so they are the rows of one query.
        seen = F.scaled_dot_product_attention(query.view(batch, self.groups, -1, width), keys, values)
        return F.linear(seen.reshape(batch, -1), layer["out"])

    def normed(self, x):
        import torch.nn.functional as F

        return F.rms_norm(x, self.norm.shape, self.norm)


class Dense(Model):
    """The shape of an 8B Llama, each layer cut over the ranks: two all-reduces a layer."""

    BATCHES = (1, 16)
    EXCHANGES = 2  # exchanges per layer
    SHAPE = {"hidden": 4096, "layers": 32, "inner": 14336, "heads": 32, "groups": 8, "width": 128, "context": 512,
             "words": 128256}
    TINY = {"hidden": 64, "layers": 2, "inner": 128, "heads": 8, "groups": 8, "width": 8, "context": 16, "words": 256}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        shape, hidden = self.shape, self.shape["hidden"]
        self.heads, self.groups, inner = (shape[name] // self.ranks for name in ("heads", "groups", "inner"))
        self.layers = [{**self.attention(), "gate_up": self.random(2 * inner, hidden), "down": self.random(hidden, inner)}
                       for _ in range(shape["layers"])]
        self.head = self.random(shape["words"] // self.ranks, hidden)

    def mine(self, x):
        return x

    def exchange(self, part):
        import torch.distributed as dist

        dist.all_reduce(part)
        return part

    def step(self, x, caches):
        """Decode one token of each sequence; returns the hidden state, and this rank's part of the logits."""
        import torch.nn.functional as F

        for layer, (keys, values) in zip(self.layers, caches):
            x = x + self.exchange(self.attend(x, layer, keys, values))
            gate, up = F.linear(self.normed(x), layer["gate_up"]).chunk(2, dim=-1)
            x = x + self.exchange(F.linear(F.silu(gate) * up, layer["down"]))
        return x, F.linear(self.normed(x), self.head)


class Mixture(Model):
    """The depth and the hidden size of DeepSeek-V3's 58 layers of experts, with few and small experts, so that two sets
    of ranks fit on two GPUs. A rank computes attention for its own sequences and has a part of the experts: an all-gather and
    a reduce-scatter of 1 MB a layer. Every expert computes every token, weighted: decoding reads all of them anyway."""

    BATCHES = (72,)
    EXCHANGES = 1
    SHAPE = {"hidden": 7168, "layers": 58, "experts": 16, "inner": 768, "heads": 32, "groups": 8, "width": 128,
             "context": 512, "words": 32000}
    TINY = {"hidden": 64, "layers": 2, "experts": 8, "inner": 32, "heads": 4, "groups": 2, "width": 16, "context": 16,
            "words": 256}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        shape, hidden = self.shape, self.shape["hidden"]
        self.heads, self.groups = shape["heads"], shape["groups"]
        inner = shape["experts"] // self.ranks * shape["inner"]
        self.layers = [{**self.attention(), "router": self.random(shape["experts"], hidden),
                        "gate_up": self.random(2 * inner, hidden), "down": self.random(hidden, inner)}
                       for _ in range(shape["layers"])]
        self.head = self.random(shape["words"], hidden)

    def mine(self, x):
        """This rank's sequences of the whole batch."""
        return x.chunk(self.ranks)[self.rank].contiguous()

    def gathered(self, part):
        import torch
        import torch.distributed as dist

        whole = torch.empty((part.shape[0] * self.ranks, part.shape[1]), device=part.device, dtype=part.dtype)
        dist.all_gather_into_tensor(whole, part)
        return whole

    def scattered(self, whole):
        import torch
        import torch.distributed as dist

        part = torch.empty((whole.shape[0] // self.ranks, whole.shape[1]), device=whole.device, dtype=whole.dtype)
        dist.reduce_scatter_tensor(part, whole)
        return part

    def exchange(self, part):
        return self.scattered(self.gathered(part))

    def products(self, rows, shares, layer):
        """The sum of this rank's experts for each row, each times the row's share of it."""
        import torch.nn.functional as F

        gate, up = F.linear(rows, layer["gate_up"]).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up * shares.repeat_interleave(self.shape["inner"], dim=-1), layer["down"])

    def experts(self, x, layer):
        import torch.nn.functional as F

        every = self.gathered(x)
        shares = F.softmax(F.linear(every, layer["router"]), dim=-1).chunk(self.ranks, dim=-1)[self.rank]
        return self.scattered(self.products(every, shares, layer))

    def step(self, x, caches, experts=None):
        """Decode one token of each of this rank's sequences; returns the hidden states of all sequences, and the
        logits of its own. experts: what replaces self.experts."""
        import torch.nn.functional as F

        for layer, (keys, values) in zip(self.layers, caches):
            x = x + self.attend(x, layer, keys, values)
            x = x + (experts or self.experts)(self.normed(x), layer)
        return self.gathered(x), F.linear(self.normed(x), self.head)


class Routed(Mixture):
    """As Mixture, with as many bytes of weights, but each token chooses 8 of 64 experts."""

    SHAPE = {**Mixture.SHAPE, "experts": 64, "inner": 192, "top_k": 8}
    TINY = {**Mixture.TINY, "hidden": 128, "top_k": 2}

    def __init__(self, *arguments):
        import torch

        super().__init__(*arguments)
        self.local = self.shape["experts"] // self.ranks
        self.numbers = torch.arange(self.shape["experts"], device=self.device)
        self.generator.manual_seed(0)
        for layer in self.layers:
            layer["router"] = self.random(self.shape["experts"], self.shape["hidden"])  # one for all ranks
            layer["down"] *= math.sqrt(self.local)  # the few experts of a token keep its size

    def routed(self, x, layer):
        """Each row's experts, among all ranks', and their weights."""
        import torch.nn.functional as F

        values, choices = F.linear(x, layer["router"]).float().topk(self.shape["top_k"], dim=-1)
        return choices, F.softmax(values, dim=-1)

    def shares(self, choices, weights, numbers):
        """Each row's share of the experts with these numbers."""
        return ((choices.unsqueeze(-1) == numbers) * weights.unsqueeze(-1)).sum(dim=1).to(self.type)

    def mine_of(self, numbers):
        return numbers[self.rank * self.local:(self.rank + 1) * self.local]

    def experts(self, x, layer):
        every = self.gathered(x)
        shares = self.shares(*self.routed(every, layer), self.mine_of(self.numbers))
        return self.scattered(self.products(every, shares, layer))

    def reference(self, x, choices, weights, layer):
        """As `experts`, with choices of this rank's rows that the router need not repeat."""
        shares = self.gathered(self.shares(choices, weights, self.numbers)).chunk(self.ranks, dim=-1)[self.rank]
        return self.scattered(self.products(self.gathered(x), shares, layer))

    def batched(self, rows, layer):
        """Each expert's results for its rows, [local experts][rows][hidden]."""
        import torch.nn.functional as F

        gate, up = layer["gate_up"].view(2, self.local, self.shape["inner"], -1).transpose(-1, -2)
        down = layer["down"].view(-1, self.local, self.shape["inner"]).permute(1, 2, 0)
        return (F.silu(rows @ gate) * (rows @ up)) @ down


class ExpertGroup:
    """A group of nccl_ep for a Routed model, and the memory into which its calls receive."""

    def __init__(self, model, library, layout, tokens, timeout_s):
        import torch

        shape, self.model = model.shape, model
        self.comm = None
        self.calls = expert_calls.Experts(library, self.communicator(), layout, timeout_s, ranks=model.ranks,
                                          experts=shape["experts"], most_tokens=tokens, top_k=shape["top_k"],
                                          row_bytes=shape["hidden"] * model.norm.element_size())
        slots = (model.ranks, tokens) if self.calls.rank_major else (model.local, model.ranks * tokens)

        def zeros(*sizes, kind):
            return torch.zeros(sizes, device=model.device, dtype=kind)

        self.received = {"tokens": zeros(*slots, shape["hidden"], kind=model.type),
                         "counters": zeros(slots[0], kind=torch.int32),
                         "choices": zeros(*slots, shape["top_k"], kind=torch.int32),
                         "weights": zeros(*slots, shape["top_k"], kind=torch.float32)}
        generator = torch.Generator().manual_seed(1 + model.rank)
        self.choices = torch.rand(tokens, shape["experts"], generator=generator).argsort(dim=-1)[:, :shape["top_k"]]
        self.choices = self.choices.contiguous().to(model.device)
        self.weights = torch.full(self.choices.shape, 1 / shape["top_k"], device=model.device)

    def communicator(self):
        """PyTorch's, since a second one would be idle company for it; where PyTorch has none of NCCL, one of our own."""
        import torch.distributed as dist

        backend = dist.group.WORLD._get_backend(self.model.device)
        if hasattr(backend, "_comm_ptr") and backend._comm_ptr():
            return backend._comm_ptr()

        def share(data):
            both = [data]
            dist.broadcast_object_list(both, src=0)
            return both[0]

        self.comm = expert_calls.Communicator(self.model.rank, self.model.ranks, share)
        return self.comm.handle.value

    def stream(self):
        import torch

        return torch.cuda.current_stream().cuda_stream if self.model.device.type == "cuda" else 0

    def combined(self, rows, like, weights):
        import torch

        out = torch.empty_like(like)
        self.calls.combine(rows, weights, out, self.stream())
        return out

    def exchange(self, part):
        """Dispatch and combine alone, with random choices."""
        self.calls.dispatch(part, self.choices, self.weights, self.received, self.stream())
        return self.combined(self.received["tokens"], part, self.weights)

    def apply(self, x, choices, weights, layer):
        model, received = self.model, self.received
        self.calls.dispatch(x, choices, weights, received, self.stream())
        rows = received["tokens"]
        if self.calls.rank_major:
            got = (received[name].view(-1, received[name].shape[-1]) for name in ("choices", "weights"))
            done = model.products(rows.view(-1, x.shape[-1]), model.shares(*got, model.numbers[:model.local]), layer)
        else:
            done = model.batched(rows, layer)
        return self.combined(done.view_as(rows), x, weights)

    def experts(self, x, layer):
        return self.apply(x, *self.model.routed(x, layer), layer)

    def end(self):
        self.calls.end()
        if self.comm:
            self.comm.end()


MODELS = {"dense": Dense, "moe": Mixture}
