#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of its NCCL backend, each with Shunt and without: the outcomes must be the same.

Needs PyTorch with CUDA, numpy, and two GPUs or more. PyTorch's wheels do not ship test/distributed, but they do ship
the class on which most of it is based, torch.testing._internal.distributed.distributed_test.DistributedTest: all of its
collectives, groups, point-to-point calls and DDP. There each test starts processes that import PyTorch; here the ranks
stay (torchrun) and run one test after the other, so that many fit into a minute. Tests that end the process group, or
expect to be killed, are left out. --only takes prefixes of names (test_all_reduce,test_ddp). Tests that the time limit
cuts off are counted. The last line is `N passed, N failed`.
"""

import os
import sys
import tempfile
import threading
import time
import types
import unittest

import client

# Tests of calls that Shunt serves run first, the others while there is time.
FIRST = ("test_all_reduce", "test_allreduce", "test_DistributedDataParallel", "test_ddp", "test_reduce",
         "test_broadcast", "test_barrier", "test_all_to_all", "test_")
STUCK = 20  # seconds after which a test counts as hung: some need the real runner's set-up
MARGIN = 20  # seconds of the time limit reserved for the start and the end
# Tests that end the group or a process, or time out on purpose.
LEFT_OUT = ("test_ddp_has_finalized", "test_ddp_model_diff", "test_destroy", "test_monitored_barrier",
            "test_barrier_timeout", "test_nccl_init_abort", "test_ddp_uneven", "test_stateless_api",
            "test_dump_DDP_relevant_env_vars", "test_verify_model_across")


def stand_in_for_expecttest():
    """PyTorch's test classes derive from this package's, which few machines have; none of these tests uses it."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        module = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        sys.modules["expecttest"] = module


def names_of(base, options):
    every = [name for name in dir(base) if name.startswith("test_") and not name.startswith(LEFT_OUT)]
    if options.only:
        return sorted(name for name in every if client.wanted(options, name))
    return sorted(every, key=lambda name: (next(i for i, word in enumerate(FIRST) if name.startswith(word)), name))


def give_up(name):
    print(f"NOTE {name} stood still for {STUCK} s, which ended the run", flush=True)
    os._exit(1)


def run_one(case):
    watchdog = threading.Timer(STUCK, give_up, (case._testMethodName,))
    watchdog.start()
    try:
        case.setUp()
        try:
            getattr(case, case._testMethodName)()
        finally:
            case.tearDown()
        return "ok", ""
    except unittest.SkipTest as why:
        return "skipped", str(why)
    except SystemExit as why:  # these tests skip by an exit
        return "skipped", f"exit {why.code}"
    except Exception as error:  # any failure must appear in the other run too
        return "failed", f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        watchdog.cancel()


def worker(options):
    end = time.monotonic() + options.seconds - MARGIN
    os.environ["BACKEND"] = "nccl"
    rank = int(os.environ["RANK"])
    os.environ["TEMP_DIR"] = os.path.join(tempfile.gettempdir(), f"shunt-own-{os.environ['MASTER_PORT']}")
    for name in ("barrier", "test_dir", "init_dir"):
        os.makedirs(os.path.join(os.environ["TEMP_DIR"], name), exist_ok=True)
    stand_in_for_expecttest()
    try:
        import torch
        import torch.distributed as dist
        from torch.testing._internal.common_utils import TestCase
        from torch.testing._internal.distributed import distributed_test
    except ImportError as error:
        client.skip(f"PyTorch's tests cannot be imported: {error}")
    base = distributed_test.DistributedTest._DistTestBase

    class Case(TestCase, base):
        def setUp(self):
            super().setUp()
            self.rank, self.file_name = rank, os.path.join(os.environ["TEMP_DIR"], "init_dir", self._testMethodName)

        @property
        def world_size(self):
            return os.environ["WORLD_SIZE"]

        @property
        def init_method(self):
            return f"file://{self.file_name}"

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    talk = dist.new_group(backend="gloo")
    late = 0
    for name in names_of(base, options):
        over = torch.tensor([int(time.monotonic() > end)])
        dist.all_reduce(over, group=talk)
        if over.item():
            late += 1
            continue
        outcomes = [None] * dist.get_world_size()
        outcome = run_one(Case(name))
        torch.cuda.set_device(rank)
        dist.all_gather_object(outcomes, outcome, group=talk)
        words = {word for word, _ in outcomes}
        if rank == 0:
            word = "failed" if "failed" in words else "skipped" if "skipped" in words else "ok"
            client.report({name: word})
            if word == "failed":
                print(f"NOTE {name}: {next(why for w, why in outcomes if w == 'failed')}", flush=True)
            distributed_test.Barrier.init()
        distributed_test.Barrier.barrier_id = 0
        dist.barrier(group=talk)
    if rank == 0 and late:
        print(f"NOTE {late} tests were not reached within {options.seconds} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    client.compare(__doc__, worker, seconds=60, torchrun_ranks=True)
