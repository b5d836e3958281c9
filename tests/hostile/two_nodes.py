# SPDX-License-Identifier: Apache-2.0
"""One rank of tests/hostile/test_two_nodes.py: RANK of NRANKS, the id in the file ID. Acts: sum (twice, then destroy),
cut (a sum, then wait for the file ID.cut, then a sum that must fail)."""

import ctypes
import os
import sys
import time

rank, nranks, path, act = int(os.environ["RANK"]), int(os.environ["NRANKS"]), os.environ["ID"], sys.argv[2]
nccl = ctypes.CDLL(sys.argv[1])
nccl.ncclGetLastError.restype = ctypes.c_char_p


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def check(result):
    if result:
        sys.exit(f"rank {rank}: {result}: {nccl.ncclGetLastError(None).decode()}")


def total():
    data, out = (ctypes.c_float * 100000)(*[rank + 1] * 100000), (ctypes.c_float * 100000)()
    result = nccl.ncclAllReduce(data, out, ctypes.c_size_t(100000), 7, 0, comm, None)
    if result == 0 and set(out) != {nranks * (nranks + 1) / 2}:
        sys.exit(f"rank {rank}: wrong sum")
    return result


own = Id()
if rank == 0:
    check(nccl.ncclGetUniqueId(ctypes.byref(own)))
    with open(path + ".new", "wb") as file:
        file.write(ctypes.string_at(ctypes.byref(own), 128))
    os.rename(path + ".new", path)
while not os.path.exists(path):
    time.sleep(0.01)
with open(path, "rb") as file:
    ctypes.memmove(ctypes.byref(own), file.read(), 128)
comm = ctypes.c_void_p()
check(nccl.ncclCommInitRank(ctypes.byref(comm), nranks, own, rank))
check(total())
open(f"{path}.{rank}", "w").close()
if act == "cut":
    while not os.path.exists(path + ".cut"):
        time.sleep(0.01)
    begun, result = time.monotonic(), total()
    if result != 6:
        sys.exit(f"rank {rank}: {result} instead of ncclRemoteError")
    print(f"rank {rank}: ncclRemoteError after {time.monotonic() - begun:.1f} s")
    check(nccl.ncclCommAbort(comm))
else:
    check(total())
    check(nccl.ncclCommDestroy(comm))
