#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""script_calls.py - scripts/expert_calls.py with Shunt's libraries on the CPU device: both layouts, exact results.

usage: script_calls.py SOURCE_FOLDER LIBNCCL_EP     (LD_LIBRARY_PATH has the folder of libnccl.so.2)

Two ranks are threads of this process. Expert e multiplies its rows by e + 1.
"""

import ctypes
import sys
import threading

sys.path.insert(0, f"{sys.argv[1]}/scripts")
import expert_calls

RANKS, EXPERTS, TOKENS, TOP_K, HIDDEN = 2, 8, 3, 2, 128
LOCAL = EXPERTS // RANKS
LIMIT = 100  # seconds, to end a hang
BASE = {"float32": ctypes.c_float, "int32": ctypes.c_int32, "int64": ctypes.c_int64}


class Tensor:
    """As much of PyTorch's as expert_calls.py uses."""

    def __init__(self, dtype, *shape, values=()):
        count = 1
        for size in shape:
            count *= size
        self.dtype, self.shape, self.memory = dtype, shape, (BASE[dtype] * (count + 4))()
        self.at = (-ctypes.addressof(self.memory) % 16) // ctypes.sizeof(BASE[dtype])  # rows are aligned to 16 bytes
        for i, value in enumerate(values):
            self[i] = value

    def data_ptr(self):
        return ctypes.addressof(self.memory) + self.at * ctypes.sizeof(BASE[self.dtype])

    def __getitem__(self, i):
        return self.memory[self.at + i]

    def __setitem__(self, i, value):
        self.memory[self.at + i] = value


class Shared:
    """Rank 0's bytes for every rank."""

    def __init__(self):
        self.barrier, self.data = threading.Barrier(RANKS), b""

    def __call__(self, data):
        if any(data):
            self.data = data
        self.barrier.wait(LIMIT)
        return self.data


def choices_of(rank):
    return [(3 * rank + token + 5 * k) % EXPERTS for token in range(TOKENS) for k in range(TOP_K)]


def weights_of(rank):
    return [0.5 * (1 + rank) if k else 0.25 for _ in range(TOKENS) for k in range(TOP_K)]


def value(rank, token):
    return 1.0 + rank * TOKENS + token


def work(layout, rank, received, out):
    """What the experts do, on rows of equal elements; rank-major, weighted and added."""
    for row in range(len(received["tokens"].memory) // HIDDEN):
        if layout == "rank-major":
            at = range(row * TOP_K, (row + 1) * TOP_K)
            scale = sum(received["weights"][i] * (1 + rank * LOCAL + received["choices"][i])
                        for i in at if received["choices"][i] >= 0)
        else:
            scale = 1 + rank * LOCAL + row // (RANKS * TOKENS)
        for i in range(row * HIDDEN, (row + 1) * HIDDEN):
            out[i] = received["tokens"][i] * scale


def buffers(layout):
    slots = (RANKS, TOKENS) if layout == "rank-major" else (LOCAL, RANKS * TOKENS)
    return {"tokens": Tensor("float32", *slots, HIDDEN), "counters": Tensor("int32", slots[0]),
            "weights": Tensor("float32", *slots, TOP_K), "choices": Tensor("int32", *slots, TOP_K)}, slots


def check(layout, rank, comm):
    experts = expert_calls.Experts(sys.argv[2], comm, layout, LIMIT, ranks=RANKS, experts=EXPERTS, most_tokens=TOKENS,
                                   top_k=TOP_K, row_bytes=4 * HIDDEN)
    tokens = Tensor("float32", TOKENS, HIDDEN, values=[value(rank, i // HIDDEN) for i in range(TOKENS * HIDDEN)])
    weights = Tensor("float32", TOKENS, TOP_K, values=weights_of(rank))
    for kind in ("int64", "int32"):
        choices = Tensor(kind, TOKENS, TOP_K, values=choices_of(rank))
        received, slots = buffers(layout)
        done, out = Tensor("float32", *slots, HIDDEN), Tensor("float32", TOKENS, HIDDEN)
        experts.dispatch(tokens, choices, weights, received, 0)
        wanted = [choice for source in range(RANKS) for choice in choices_of(source)]
        if layout == "expert-major":
            assert [received["counters"][e] for e in range(LOCAL)] == [wanted.count(rank * LOCAL + e) for e in range(LOCAL)]
        work(layout, rank, received, done)
        experts.combine(done, weights, out, 0)
        for token in range(TOKENS):
            factor = sum(weights[token * TOP_K + k] * (1 + choices[token * TOP_K + k]) for k in range(TOP_K))
            got = {out[token * HIDDEN + i] for i in range(HIDDEN)}
            assert got == {value(rank, token) * factor}, (layout, kind, rank, token, got, factor)
    try:
        experts.combine(tokens, weights, out, 0)
    except RuntimeError as error:
        assert "ncclEpCombine returned 4: " in str(error) and "dimensions" in str(error), error
    else:
        raise AssertionError("wrong sizes were accepted")
    experts.end()


def run(rank, share, faults):
    try:
        comm = expert_calls.Communicator(rank, RANKS, share)
        for layout in expert_calls.LAYOUTS:
            check(layout, rank, comm.handle.value)
        comm.end()
    except BaseException as error:
        faults.append(error)
        raise


def main():
    share, faults = Shared(), []
    threads = [threading.Thread(target=run, args=(rank, share, faults), daemon=True) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a rank hangs"
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
