# SPDX-License-Identifier: Apache-2.0
"""Processes for programs that spawn theirs with multiprocessing: forked from a server that has imported torch.

Most of the time of one of PyTorch's tests is the import of torch in each of its ranks. The server makes no CUDA
context, which a fork would break; each process gets its creator's environment, main module and arguments, and exits
like a spawned one. Forked processes have all libraries loaded already, including a preloaded Shunt.
"""

import ctypes
import multiprocessing
import multiprocessing.context
import multiprocessing.forkserver
import multiprocessing.popen_forkserver
import os

IMPORTS = ["torch", "torch.distributed", "torch.testing._internal.common_distributed",
           "torch.testing._internal.common_fsdp", "torch._dynamo"]
ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"  # makes PyTorch count GPUs without CUDA


class Sent:
    """The description of a process that is sent to the server and runs there."""

    def __init__(self, process):
        self._name, self.process, self.environment = process._name, process, dict(os.environ)

    def _bootstrap(self, *arguments):
        os.environ.clear()
        os.environ.update(self.environment)
        status = self.process._bootstrap(*arguments)
        ctypes.pythonapi.Py_Exit(status)  # runs the libraries' exit handlers, which the server's os._exit would skip


class Process(multiprocessing.context.ForkServerProcess):
    @staticmethod
    def _Popen(process):
        return multiprocessing.popen_forkserver.Popen(Sent(process))


class Context(multiprocessing.context.ForkServerContext):
    Process = Process


def instead_of_spawned():
    """Make multiprocessing's "spawn" start these processes from now on; no other method works."""
    multiprocessing.context._concrete_contexts["spawn"] = Context()
    multiprocessing.set_start_method("spawn")
    multiprocessing.forkserver.set_forkserver_preload(IMPORTS)
    os.environ[ASK_NVML] = "1"
    multiprocessing.forkserver.ensure_running()
    del os.environ[ASK_NVML]
