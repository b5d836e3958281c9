# SPDX-License-Identifier: Apache-2.0
"""decode_models.py - the models of decode-bench: a rank's part of the weights, and one step of decoding.

Weights are random, seeded by the rank alone, so both sets of ranks have the same. Parts without weights or exchanges
(rotary positions, sampling) are left out.
"""

import math


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

    def step(self, x, caches):
        """Decode one token of each of this rank's sequences; returns the hidden states of all sequences, and the
        logits of its own."""
        import torch.nn.functional as F

        for layer, (keys, values) in zip(self.layers, caches):
            x = x + self.attend(x, layer, keys, values)
            every = self.gathered(self.normed(x))
            shares = F.softmax(F.linear(every, layer["router"]), dim=-1).chunk(self.ranks, dim=-1)[self.rank]
            gate, up = F.linear(every, layer["gate_up"]).chunk(2, dim=-1)
            work = F.silu(gate) * up * shares.repeat_interleave(self.shape["inner"], dim=-1)
            x = x + self.scattered(F.linear(work, layer["down"]))
        return self.gathered(x), F.linear(self.normed(x), self.head)


MODELS = {"dense": Dense, "moe": Mixture}
