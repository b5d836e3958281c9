# SPDX-License-Identifier: Apache-2.0
"""The forms of PyTorch's collectives and messages, each with random data and its expected result.

Every rank can make every rank's input, so the expected result needs no exchange. Moved data is random bytes (NaNs
too); summed data is small integers, exact in every type and order. So results are equal or wrong, whichever library
serves the call. A form issues its call and returns pairs (got, wanted), to be compared when the call has ended.
"""

import random

from pytorch_ops import Ranks


class Group:
    """A process group, made on all ranks and used by its members."""

    def __init__(self, t, ranks):
        self.handle, self.ranks, self.size = t.dist.new_group(ranks), ranks, len(ranks)
        self.me = ranks.index(t.rank) if t.rank in ranks else None


class Forms(Ranks):
    def __init__(self, options):
        super().__init__(options)
        torch = self.torch
        self.dice = random.Random(20)  # gives the same numbers on every rank
        self.works, self.later = [], False
        self.moved = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                      torch.float64, torch.bool]
        self.summed = self.moved[:-1]
        if self.cuda:
            self.moved += [torch.float8_e4m3fn, torch.float8_e5m2]
        if self.cuda and torch.cuda.get_device_capability() >= (9, 0):
            self.summed = self.summed + self.moved[-2:]
        ops = self.dist.ReduceOp
        self.operators = [ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX]
        if self.cuda and self.size & (self.size - 1) == 0:  # an average is exact only if 1/n is
            self.operators.append(ops.AVG)

    def count(self, least=1, most=19):
        """A number of elements: a small odd one, or up to 2^most, spread over the powers of two."""
        if self.dice.random() < 0.2:
            return max(least, self.dice.choice((0, 1, 2, 3, 7, 17, 129, 1000)))
        return max(least, int(2 ** self.dice.uniform(0, most)))

    def random(self, rank, count, kind, low, high):
        generator = self.torch.Generator(device=self.device).manual_seed(self.seed * 64 + rank)
        return self.torch.randint(low, high, (count,), generator=generator, device=self.device, dtype=kind)

    def bits(self, rank, count, dtype):
        """Random bytes in a buffer that may begin at any element of its storage."""
        torch = self.torch
        if dtype == torch.bool:
            return self.random(rank, count, torch.uint8, 0, 2).view(dtype)
        start = self.seed % 3
        return self.random(rank, (count + start) * dtype.itemsize, torch.uint8, 0, 256).view(dtype)[start:]

    def numbers(self, rank, count, dtype, op):
        ops = self.dist.ReduceOp
        most = 1 if dtype.itemsize == 1 else 31
        low, high = (1, 2) if op == ops.PRODUCT else (0 if dtype == self.torch.uint8 else -most, most)
        start = self.seed % 3
        made = self.random(rank, count + start, self.torch.int64, low, high + 1)
        return (made * self.size if op == ops.AVG else made).to(dtype)[start:]

    def reduced_to(self, tensors, op):
        ops, dtype = self.dist.ReduceOp, tensors[0].dtype
        wide = self.torch.stack([x.to(self.torch.float64 if dtype.is_floating_point else self.torch.int64)
                                 for x in tensors])
        if op == ops.MIN:
            value = wide.amin(0)
        elif op == ops.MAX:
            value = wide.amax(0)
        elif op == ops.PRODUCT:
            value = wide.prod(0)
        else:
            value = wide.sum(0)
        return (value // len(tensors) if op == ops.AVG else value).to(dtype)

    def empty(self, count, dtype):
        """A poisoned buffer, in which unwritten bytes are detected; may begin at any element of its storage."""
        start = self.seed // 3 % 3
        made = self.torch.full(((count + start) * dtype.itemsize,), 0xA5, dtype=self.torch.uint8, device=self.device)
        return made.view(dtype)[start:]

    def issue(self, call, *arguments, g, **more):
        work = call(*arguments, group=g.handle, async_op=self.later, **more)
        if work is not None:
            self.works.append(work)

    def finish(self):
        for work in self.works:
            work.wait()
        self.works = []
        self.synchronize()

    def equal(self, pairs):
        """Whether two tensors are equal bit by bit."""
        for got, wanted in pairs:
            got, wanted = got.contiguous().view(self.torch.uint8), wanted.contiguous().view(self.torch.uint8)
            if not self.torch.equal(got, wanted):
                wrong = (got != wanted).nonzero()
                print(f"{len(wrong)} bytes of {len(got)} are wrong, the first at {wrong[0].item()}", flush=True)
                return False
        return True


# ---- Forms that move data ------------------------------------------------------------------------------------


def parts_of(t, g, dtype, counts):
    t.seed += 1
    return [t.bits(r, count, dtype) for r, count in zip(g.ranks, counts)]


def all_gather_into(t, g, dtype):
    count = t.count()
    parts = parts_of(t, g, dtype, [count] * g.size)
    out = t.empty(count * g.size, dtype)
    own = parts[g.me]
    if t.dice.random() < 0.5:
        own = out[g.me * count:(g.me + 1) * count]
        own.copy_(parts[g.me])
    t.issue(t.dist.all_gather_into_tensor, out, own, g=g)
    return [(out, t.torch.cat(parts))]


def all_gather_list(t, g, dtype):
    parts = parts_of(t, g, dtype, [t.count()] * g.size)
    outs = [t.empty(len(part), dtype) for part in parts]
    t.issue(t.dist.all_gather, outs, parts[g.me], g=g)
    return list(zip(outs, parts))


def all_gather_uneven(t, g, dtype):
    """An all-gather of unequal parts: PyTorch makes a group of broadcasts with different roots."""
    counts = [t.count() for _ in g.ranks]
    counts[0] = counts[-1] + 1
    parts = parts_of(t, g, dtype, counts)
    outs = [t.empty(len(part), dtype) for part in parts]
    t.issue(t.dist.all_gather, outs, parts[g.me], g=g)
    return list(zip(outs, parts))


def all_to_all_even(t, g, dtype):
    count = t.count()
    parts = parts_of(t, g, dtype, [count * g.size] * g.size)
    out = t.empty(count * g.size, dtype)
    t.issue(t.dist.all_to_all_single, out, parts[g.me], g=g)
    return [(out, t.torch.cat([part[g.me * count:(g.me + 1) * count] for part in parts]))]


def splits_of(t, g):
    """Counts indexed [sender][receiver], sometimes 0."""
    return [[0 if t.dice.random() < 0.2 else t.count(most=16) for _ in g.ranks] for _ in g.ranks]


def all_to_all_splits(t, g, dtype):
    splits = splits_of(t, g)
    parts = parts_of(t, g, dtype, [sum(row) for row in splits])
    takes = [row[g.me] for row in splits]
    out = t.empty(sum(takes), dtype)
    t.issue(t.dist.all_to_all_single, out, parts[g.me], takes, splits[g.me], g=g)
    return [(out, t.torch.cat([part.split(row)[g.me] for part, row in zip(parts, splits)]))]


def all_to_all_list(t, g, dtype):
    splits = splits_of(t, g)
    parts = [part.split(row) for part, row in
             zip(parts_of(t, g, dtype, [sum(row) for row in splits]), splits)]
    outs = [t.empty(row[g.me], dtype) for row in splits]
    t.issue(t.dist.all_to_all, outs, list(parts[g.me]), g=g)
    return [(out, part[g.me]) for out, part in zip(outs, parts)]


def broadcast(t, g, dtype):
    root = t.dice.randrange(g.size)
    sent = parts_of(t, g, dtype, [t.count()] * g.size)[root]
    x = sent if g.me == root else t.empty(len(sent), dtype)
    wanted = sent.clone()
    t.issue(t.dist.broadcast, x, g.ranks[root], g=g)
    return [(x, wanted)]


def gather(t, g, dtype):
    root = t.dice.randrange(g.size)
    parts = parts_of(t, g, dtype, [t.count()] * g.size)
    outs = [t.empty(len(part), dtype) for part in parts] if g.me == root else None
    t.issue(t.dist.gather, parts[g.me], outs, g.ranks[root], g=g)
    return list(zip(outs or [], parts))


def scatter(t, g, dtype):
    root, count = t.dice.randrange(g.size), t.count()
    sent = parts_of(t, g, dtype, [count * g.size] * g.size)[root]
    out = t.empty(count, dtype)
    t.issue(t.dist.scatter, out, list(sent.chunk(g.size)) if g.me == root else None, g.ranks[root], g=g)
    return [(out, sent[g.me * count:(g.me + 1) * count])]


# ---- Forms that reduce ---------------------------------------------------------------------------------------


def terms_of(t, g, dtype, op, count):
    t.seed += 1
    return [t.numbers(r, count, dtype, op) for r in g.ranks]


def all_reduce(t, g, dtype, op):
    terms = terms_of(t, g, dtype, op, t.count())
    x, wanted = terms[g.me], t.reduced_to(terms, op)
    t.issue(t.dist.all_reduce, x, g=g, op=op)
    return [(x, wanted)]


def reduce(t, g, dtype, op):
    root = t.dice.randrange(g.size)
    terms = terms_of(t, g, dtype, op, t.count())
    x, wanted = terms[g.me], t.reduced_to(terms, op)
    t.issue(t.dist.reduce, x, g.ranks[root], g=g, op=op)
    return [(x, wanted)] if g.me == root else []


def reduce_scatter_tensor(t, g, dtype, op):
    count = t.count()
    terms = terms_of(t, g, dtype, op, count * g.size)
    here = slice(g.me * count, (g.me + 1) * count)
    wanted = t.reduced_to([x[here] for x in terms], op)
    out = terms[g.me][here] if t.dice.random() < 0.5 else t.empty(count, dtype)
    t.issue(t.dist.reduce_scatter_tensor, out, terms[g.me], g=g, op=op)
    return [(out, wanted)]


def reduce_scatter_list(t, g, dtype, op):
    count = t.count()
    terms = terms_of(t, g, dtype, op, count * g.size)
    out = t.empty(count, dtype)
    t.issue(t.dist.reduce_scatter, out, list(terms[g.me].chunk(g.size)), g=g, op=op)
    return [(out, t.reduced_to([x[g.me * count:(g.me + 1) * count] for x in terms], op))]


def reduce_scatter_uneven(t, g, dtype, op):
    """A reduce-scatter of unequal parts: PyTorch makes a group of reduces with different roots."""
    counts = [t.count() for _ in g.ranks]
    counts[0] = counts[-1] + 1
    terms = terms_of(t, g, dtype, op, sum(counts))
    out = t.empty(counts[g.me], dtype)
    t.issue(t.dist.reduce_scatter, out, list(terms[g.me].split(counts)), g=g, op=op)
    return [(out, t.reduced_to([x.split(counts)[g.me] for x in terms], op))]


# ---- Forms of several calls ----------------------------------------------------------------------------------


def coalesced(t, g, dtype, op):
    """A few calls of one kind in one group."""
    calls, rows = [], []
    kind = t.dice.randrange(3)
    for _ in range(5):
        count = t.count(most=15)
        terms = terms_of(t, g, dtype, op, count * (1 if kind == 0 else g.size))
        here = slice(g.me * count, (g.me + 1) * count)
        if kind == 0:
            out = t.empty(count * g.size, dtype)
            calls.append((t.dist.all_gather_into_tensor, (out, terms[g.me]), {}))
            rows.append((out, t.torch.cat(terms)))
        elif kind == 1:
            out = t.empty(count, dtype)
            calls.append((t.dist.reduce_scatter_tensor, (out, terms[g.me]), {"op": op}))
            rows.append((out, t.reduced_to([x[here] for x in terms], op)))
        else:
            wanted = t.reduced_to(terms, op)
            calls.append((t.dist.all_reduce, (terms[g.me],), {"op": op}))
            rows.append((terms[g.me], wanted))
    with t.dist._coalescing_manager(group=g.handle, device=t.device, async_ops=True) as manager:
        for call, arguments, more in calls:
            call(*arguments, group=g.handle, **more)
    t.works.append(manager)
    return rows


def messages(t, g, dtype):
    """Up to three messages from every rank to every rank, listed in a different order on each."""
    t.seed += 1
    sends, receives, pairs = [], [], []
    for a in range(g.size):
        for b in range(g.size):
            lots = [t.bits(64 * a + b, t.count(most=18), dtype) for _ in range(t.dice.randrange(4)) if a != b]
            for lot in lots:
                if a == g.me:
                    sends.append((b, t.dist.P2POp(t.dist.isend, lot, g.ranks[b], g.handle)))
                elif b == g.me:
                    out = t.empty(len(lot), dtype)
                    receives.append((a, t.dist.P2POp(t.dist.irecv, out, g.ranks[a], g.handle)))
                    pairs.append((out, lot))
    shift = g.me % 3
    orders = (sends + receives, receives + sends,
              [op for both in zip(sends, receives) for op in both] + sends[len(receives):] + receives[len(sends):])
    listed = [op for _, op in orders[shift]]
    if listed:
        t.works.extend(t.dist.batch_isend_irecv(listed))
    return pairs


def exchange(t, g, dtype):
    """Pairs of ranks send and receive, each by a separate call."""
    t.seed += 1
    count, other = t.count(), g.me ^ 1
    if other >= g.size:
        return []
    own, out = t.bits(g.me, count, dtype), t.empty(count, dtype)
    for k in range(2):
        if (g.me + k) % 2 == 0:
            t.works.append(t.dist.isend(own, g.ranks[other], group=g.handle))
        else:
            t.works.append(t.dist.irecv(out, g.ranks[other], group=g.handle))
    return [(out, t.bits(other, count, dtype))]


MOVES = (all_gather_into, all_gather_list, all_gather_uneven, all_to_all_even, all_to_all_splits, all_to_all_list,
         broadcast, gather, scatter, messages, exchange)
SUMS = (all_reduce, reduce, reduce_scatter_tensor, reduce_scatter_list, reduce_scatter_uneven, coalesced)


def any_form(t, g):
    """A call of a random form, type and operator, the same on all members, which share their seeds."""
    form = t.dice.choice(MOVES + SUMS)
    if form in MOVES:
        return form(t, g, t.dice.choice(t.moved))
    return form(t, g, t.dice.choice(t.summed), t.dice.choice(t.operators))


def check_forms(t, g, rounds):
    for form in MOVES:
        for dtype in t.moved:
            t.check(f"{form.__name__} {str(dtype)[6:]}", lambda: repeat(t, rounds, lambda: form(t, g, dtype)))
    for form in SUMS:
        for dtype in t.summed:
            t.check(f"{form.__name__} {str(dtype)[6:]}", lambda: repeat(
                t, 1, *(lambda op=op: form(t, g, dtype, op) for op in t.operators)))


def repeat(t, rounds, *calls):
    pairs = []
    for _ in range(rounds):
        for call in calls:
            pairs += call()
    t.finish()
    return t.equal(pairs)
