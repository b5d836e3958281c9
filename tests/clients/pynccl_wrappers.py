#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM's and SGLang's modules for NCCL, run alone: find the library, make communicators, call, destroy.

The whole programs are too large for a test. PYNCCL names a folder that has `vllm/` or `sglang/` or both; of each only
the wrapper (and vLLM's utils/nccl.py) is loaded, with small stand-ins for its imports. Fetch them with

    scripts/wheel_files.py vllm FOLDER device_communicators/pynccl_wrapper.py vllm/utils/nccl.py
    scripts/wheel_files.py sglang FOLDER srt/distributed/device_communicators/pynccl_wrapper.py

Ranks are threads. On the CPU device, or on two GPUs or more. The last line is `N passed, N failed`.
"""

import ctypes
import importlib.util
import logging
import os
import sys
import threading
import types
from pathlib import Path

import client
from nccl_ctypes import Device

FLOAT32, SUM = 7, 0
COUNTS = (1, 1000, 65537)
CALLS = ("all-reduce", "all-gather", "reduce-scatter", "group", "broadcast")
PROGRAMS = {  # (the variable that names the library, the files in the order in which they are loaded)
    "vllm": ("VLLM_NCCL_SO_PATH", ("vllm.utils.nccl", "vllm.distributed.device_communicators.pynccl_wrapper")),
    "sglang": ("SGLANG_NCCL_SO_PATH", ("sglang.srt.distributed.device_communicators.pynccl_wrapper",)),
}


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


class Anything:
    """Every attribute is a stand-in too, equal only to itself."""

    def __getattr__(self, name):
        made = Anything()
        setattr(self, name, made)
        return made


def torch_stand_ins():
    dtypes = {name: name for name in ("int8 uint8 int32 int64 float16 float32 float64 bfloat16 float8_e4m3fn "
                                      "float8_e5m2 half float double dtype").split()}
    version = types.SimpleNamespace(cuda="13.0", hip=None)
    stand_in("torch", version=version, Tensor=object, cuda=Anything(), **dtypes)
    stand_in("torch.distributed", ReduceOp=Anything())


def stand_ins():
    for package in ("vllm", "vllm.utils", "vllm.distributed", "vllm.distributed.device_communicators", "sglang",
                    "sglang.srt", "sglang.srt.distributed", "sglang.srt.distributed.device_communicators"):
        stand_in(package)
    envs = stand_in("vllm.envs", VLLM_USE_NCCL_SYMM_MEM=False)
    envs.__getattr__ = os.environ.get
    sys.modules["vllm"].envs = envs
    platform = types.SimpleNamespace(is_rocm=lambda: False, fp8_dtype=lambda: "float8_e4m3fn")
    stand_in("vllm.platforms", current_platform=platform)

    def init_logger(name):
        logger = logging.getLogger(name)
        logger.debug_once = logger.info_once = logger.debug
        return logger

    stand_in("vllm.logger", init_logger=init_logger)


def load(folder, names):
    for name in names:
        path = Path(folder, *name.split(".")).with_suffix(".py")
        if not path.is_file():
            return None
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def programs(wanted):
    """The last module of each program whose files are in the folder PYNCCL."""
    found = False
    for name, (variable, files) in wanted.items():
        if os.environ.get("LD_PRELOAD"):  # `shunt run` sets the same
            os.environ[variable] = os.environ["LD_PRELOAD"]
        module = load(os.environ.get("PYNCCL", ""), files)
        if module is not None:
            found = True
            yield name, module
    if not found:
        client.skip("PYNCCL must name a folder with the files of vLLM or SGLang")


class OnCpu:
    """Stands for NCCL in Device's query whether this is Shunt's CPU device."""

    def __init__(self, library):
        self.cpu = hasattr(library, "shunt_host_mode") and bool(library.shunt_host_mode())


def address(module, memory):
    """A buffer's address in the form that the wrappers accept."""
    return module.buffer_type(ctypes.cast(memory, ctypes.c_void_p).value)


def rank_calls(module, library, unique, ranks, rank, good):
    device = Device(OnCpu(library.lib), rank)
    stream = module.cudaStream_t(device.stream.value)
    comm = library.ncclCommInitRank(ranks, unique, rank)
    mine = (rank + 1.0,)
    total = ranks * (ranks + 1) / 2
    for count in COUNTS:
        one, many = device.put(mine * count), device.put(mine * (count * ranks))
        out, scattered, grouped, cast = (device.put((0.0,) * count) for _ in range(4))
        wide = device.put((0.0,) * (count * ranks))
        library.ncclAllReduce(address(module, one), address(module, out), count, FLOAT32, SUM, comm, stream)
        good["all-reduce", count, rank] = all(value == total for value in device.get(out, count))
        library.ncclAllGather(address(module, one), address(module, wide), count, FLOAT32, comm, stream)
        gathered = device.get(wide, count * ranks)
        good["all-gather", count, rank] = all(gathered[i * count] == i + 1 == gathered[i * count + count - 1]
                                              for i in range(ranks))
        library.ncclReduceScatter(address(module, many), address(module, scattered), count, FLOAT32, SUM, comm, stream)
        good["reduce-scatter", count, rank] = all(value == total for value in device.get(scattered, count))
        library.ncclGroupStart()
        library.ncclAllReduce(address(module, one), address(module, grouped), count, FLOAT32, SUM, comm, stream)
        library.ncclGroupEnd()
        good["group", count, rank] = all(value == total for value in device.get(grouped, count))
        if hasattr(library, "ncclBroadcast"):
            library.ncclBroadcast(address(module, one), address(module, cast), count, FLOAT32, 0, comm, stream)
            good["broadcast", count, rank] = all(value == 1 for value in device.get(cast, count))
        for memory in (one, many, out, scattered, grouped, cast, wide):
            device.free(memory)
    library.ncclCommDestroy(comm)


def check(module, name, ranks):
    try:
        library = module.NCCLLibrary()  # finds the library by the program's own rule
    except AttributeError as error:  # the program needs a newer NCCL
        print(f"NOTE {name}: {error}")
        client.report(dict.fromkeys([f"{name} version", *(f"{name} {what} {count}" for what in CALLS for count in COUNTS)],
                                    False))
        return
    unique, good = library.ncclGetUniqueId(), {}
    threads = [threading.Thread(target=rank_calls, args=(module, library, unique, ranks, rank, good), daemon=True)
               for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = {f"{name} version": bool(library.ncclGetVersion())}
    for what, count in dict.fromkeys(key[:2] for key in good):
        results[f"{name} {what} {count}"] = all(good.get((what, count, rank)) for rank in range(ranks))
    client.report(results)


def worker(options):
    torch_stand_ins()
    stand_ins()
    for name, module in programs(PROGRAMS):
        check(module, name, options.gpus)


if __name__ == "__main__":
    client.compare(__doc__, worker)
