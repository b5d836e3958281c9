# SPDX-License-Identifier: Apache-2.0
"""NCCL, and memory for it, through ctypes: on GPUs with libcudart, on Shunt's CPU device with nothing else.

Independent of Shunt, except for the check for its CPU device, which has no streams and uses the process's own
memory.
"""

import array
import ctypes
import glob
import os
import site

SUCCESS, IN_PROGRESS = 0, 7
FLOAT32 = 7
SUM, PROD, MAX, MIN, AVG = range(5)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]

    @classmethod
    def of(cls, data):
        made = cls()
        ctypes.memmove(ctypes.byref(made), data, 128)
        return made

    def data(self):
        return ctypes.string_at(ctypes.byref(self), 128)


def open_first(*names):
    wheels = [path for folder in site.getsitepackages() + [site.getusersitepackages()] for name in names
              for path in glob.glob(f"{folder}/nvidia/*/lib/{name}")]
    for name in [*names, *wheels]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Nccl:
    """NCCL's functions; they raise an exception on any result but success and in progress."""

    def __init__(self):
        self.library = open_first(os.environ.get("NCCL_LIBRARY", "libnccl.so.2"))
        if self.library is None:
            raise OSError("no libnccl.so.2")
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.library.ncclGetLastError.restype = ctypes.c_char_p
        self.cpu = hasattr(self.library, "shunt_host_mode") and bool(self.library.shunt_host_mode())

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result not in (SUCCESS, IN_PROGRESS):
                raise RuntimeError(f"{name}: {self.library.ncclGetErrorString(result).decode()}: "
                                   f"{self.library.ncclGetLastError(None).decode()}")
            return result

        return call

    def unique_id(self):
        made = UniqueId()
        self.ncclGetUniqueId(ctypes.byref(made))
        return made

    def init(self, nranks, unique_id, rank):
        comm = ctypes.c_void_p()
        self.ncclCommInitRank(ctypes.byref(comm), nranks, unique_id, rank)
        return comm


class Device:
    """One GPU, current in this thread, or the CPU device."""

    def __init__(self, nccl, ordinal):
        self.cuda = None if nccl.cpu else open_first("libcudart.so", "libcudart.so.13", "libcudart.so.12")
        if not nccl.cpu and self.cuda is None:
            raise OSError("no libcudart.so")
        self.stream = ctypes.c_void_p()
        if self.cuda:
            self.check(self.cuda.cudaSetDevice(ordinal))
            self.check(self.cuda.cudaStreamCreate(ctypes.byref(self.stream)))

    @staticmethod
    def check(error):
        if error:
            raise RuntimeError(f"CUDA error {error}")

    def put(self, values):
        """Copy floats into memory that NCCL can use."""
        data = (ctypes.c_float * len(values))(*values)
        if not self.cuda:
            return data
        pointer = ctypes.c_void_p()
        self.check(self.cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(ctypes.sizeof(data))))
        self.check(self.cuda.cudaMemcpy(pointer, data, ctypes.c_size_t(ctypes.sizeof(data)), 1))
        return pointer

    def set(self, memory, values):
        """Copy floats into memory that `put` returned, when the stream is idle."""
        data = (ctypes.c_float * len(values))(*values)
        if self.cuda:
            self.check(self.cuda.cudaMemcpy(memory, data, ctypes.c_size_t(ctypes.sizeof(data)), 1))
        else:
            memory[:len(values)] = data

    def get(self, memory, count):
        """Wait for all work of the stream, and read floats."""
        if not self.cuda:
            return array.array("f", memory[:count])
        data = (ctypes.c_float * count)()
        self.check(self.cuda.cudaStreamSynchronize(self.stream))
        self.check(self.cuda.cudaMemcpy(data, memory, ctypes.c_size_t(ctypes.sizeof(data)), 2))
        return array.array("f", data)

    def free(self, memory):
        if self.cuda:
            self.check(self.cuda.cudaFree(memory))

    def free_bytes(self):
        """A stream of the GPU; on the CPU device, none."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self.cuda:
            self.check(self.cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
        return free.value
