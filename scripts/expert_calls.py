# SPDX-License-Identifier: Apache-2.0
"""expert_calls.py - dispatch and combine of nccl_ep, by ctypes: of Shunt's libnccl_ep.so.0 or of NVIDIA's.

The structures are those of shim/experts/nccl_ep.h; tests/tools/test_scripts.py compares them. A tensor is an object with
data_ptr(), shape and dtype, as PyTorch's; its memory is the caller's, who keeps it until the stream has passed the call.
"""

import ctypes
from ctypes import POINTER, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulong, c_void_p

MAGIC, TENSOR_MAGIC, API_VERSION = 0xC00FFFEE, 0xCAFECAFE, 2
LOW_LATENCY = 0
LAYOUTS = {"expert-major": 1, "rank-major": 2}
TYPES = {"int32": 2, "int64": 4, "float16": 6, "float32": 7, "bfloat16": 9}  # ncclDataType_t


class Struct(ctypes.Structure):
    """A structure that begins with its size and a magic word."""

    MAGIC = MAGIC

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(self), magic=self.MAGIC, **fields)


class Tensor(Struct):
    MAGIC = TENSOR_MAGIC
    _fields_ = [("size", c_uint), ("magic", c_uint), ("ndim", c_uint), ("datatype", c_int), ("data", c_void_p),
                ("win_hdl", c_void_p), ("win_offset", c_uint64), ("sizes", POINTER(c_size_t))]


class AllocConfig(ctypes.Structure):
    _fields_ = [("alloc_fn", c_void_p), ("free_fn", c_void_p), ("context", c_void_p)]


class GroupConfig(Struct):
    _fields_ = [("size", c_uint), ("magic", c_uint), ("version", c_uint), ("algorithm", c_int), ("num_experts", c_uint),
                ("max_dispatch_tokens_per_rank", c_uint), ("max_recv_tokens_per_rank", c_uint), ("max_token_bytes", c_uint),
                ("rdma_buffer_size", c_ulong), ("num_qp_per_rank", c_uint), ("num_channels", c_uint),
                ("max_num_sms", c_uint), ("alloc", AllocConfig), ("enable_mask", c_uint), ("timeout_ns", c_uint64),
                ("zero_copy", c_int), ("overflow_policy", c_int), ("num_topk", c_uint), ("padding_v2", c_ubyte * 4)]


def pointers(*names):
    return [(name, POINTER(Tensor)) for name in names]


class LayoutInfo(Struct):
    _fields_ = [("size", c_uint), ("magic", c_uint),
                *pointers("expert_counters", "src_rank_counters", "expert_offsets", "recv_total_counter"),
                ("recv_topk_idx_kind", c_int), ("padding_v2", c_ubyte * 4)]


class DispatchInputs(Struct):
    _fields_ = [("size", c_uint), ("magic", c_uint), *pointers("tokens", "topk_weights", "scales")]


class DispatchOutputs(Struct):
    _fields_ = [("size", c_uint), ("magic", c_uint), *pointers("tokens", "topk_weights", "scales", "topk_idx")]


class CombineInputs(Struct):
    _fields_ = [("size", c_uint), ("magic", c_uint), *pointers("tokens", "topk_weights", "scales")]


class CombineOutputs(Struct):
    _fields_ = [("size", c_uint), ("magic", c_uint), *pointers("tokens", "topk_weights")]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_ubyte * 128)]


def tensor_of(tensor):
    """The descriptor of a tensor, which keeps its list of sizes."""
    sizes = (c_size_t * len(tensor.shape))(*tensor.shape)
    return Tensor(ndim=len(tensor.shape), datatype=TYPES[str(tensor.dtype).removeprefix("torch.")], data=tensor.data_ptr(),
                  sizes=ctypes.cast(sizes, POINTER(c_size_t)))


def pointer_to(tensor):
    return ctypes.pointer(tensor_of(tensor))


class Library:
    """Functions of a library that return ncclResult_t; they raise an exception if that is not ncclSuccess."""

    def __init__(self, name):
        self.library = ctypes.CDLL(name)
        self.nccl = ctypes.CDLL("libnccl.so.2")  # the loaded one
        self.nccl.ncclGetErrorString.restype = self.nccl.ncclGetLastError.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            text = self.nccl.ncclGetErrorString(result) + b"; " + (self.nccl.ncclGetLastError(None) or b"")
            raise RuntimeError(f"{name} returned {result}: {text.decode(errors='replace')}")


class Communicator:
    """A communicator of the loaded NCCL. share(bytes) returns rank 0's bytes on every rank."""

    def __init__(self, rank, ranks, share):
        self.nccl, self.handle, unique = Library("libnccl.so.2"), c_void_p(), UniqueId()
        if rank == 0:
            self.nccl.call("ncclGetUniqueId", ctypes.byref(unique))
        unique = UniqueId.from_buffer_copy(share(bytes(unique)))
        self.nccl.call("ncclCommInitRank", ctypes.byref(self.handle), ranks, unique, rank)

    def end(self):
        self.nccl.call("ncclCommDestroy", self.handle)


class Experts:
    """A group in low-latency mode, with one handle. All ranks create it, and make the same calls in the same order."""

    def __init__(self, library, comm, layout, timeout_s, **sizes):
        """sizes: ranks, experts (of all ranks), most_tokens (of a rank), top_k, row_bytes."""
        self.library, self.rank_major = Library(library), layout == "rank-major"
        self.group, self.handle = c_void_p(), c_void_p()
        # NVIDIA's low latency needs a queue pair for each local expert.
        config = GroupConfig(version=API_VERSION, algorithm=LOW_LATENCY, num_experts=sizes["experts"],
                             max_dispatch_tokens_per_rank=sizes["most_tokens"], max_token_bytes=sizes["row_bytes"],
                             num_qp_per_rank=sizes["experts"] // sizes["ranks"], timeout_ns=int(timeout_s * 1e9),
                             num_topk=sizes["top_k"])
        self.library.call("ncclEpCreateGroup", ctypes.byref(self.group), c_void_p(comm), ctypes.byref(config))
        self.library.call("ncclEpInitHandle", ctypes.byref(self.handle), self.group, LAYOUTS[layout], None,
                          sizes["top_k"], None)

    def dispatch(self, tokens, choices, weights, received, stream):
        """received: tokens in the layout, counters, and rank-major weights and choices. stream: a cudaStream_t."""
        self.choices = tensor_of(choices)  # NVIDIA's library does not say that it copies the descriptor
        inputs, outputs = DispatchInputs(tokens=pointer_to(tokens)), DispatchOutputs(tokens=pointer_to(received["tokens"]))
        info = LayoutInfo()
        if self.rank_major:
            inputs.topk_weights = pointer_to(weights)
            outputs.topk_weights, outputs.topk_idx = pointer_to(received["weights"]), pointer_to(received["choices"])
            info.src_rank_counters = pointer_to(received["counters"])
        else:
            info.expert_counters = pointer_to(received["counters"])
        self.library.call("ncclEpUpdateHandle", self.handle, ctypes.byref(self.choices), None, c_void_p(stream))
        self.library.call("ncclEpDispatch", self.handle, ctypes.byref(inputs), ctypes.byref(outputs), ctypes.byref(info),
                          None, c_void_p(stream))

    def combine(self, rows, weights, out, stream):
        """rows: the experts' results in the layout; rank-major they are weighted already."""
        inputs, outputs = CombineInputs(tokens=pointer_to(rows)), CombineOutputs(tokens=pointer_to(out))
        if not self.rank_major:
            outputs.topk_weights = pointer_to(weights)
        self.library.call("ncclEpCombine", self.handle, ctypes.byref(inputs), ctypes.byref(outputs), None, c_void_p(stream))

    def end(self):
        self.library.call("ncclEpHandleDestroy", self.handle)
        self.library.call("ncclEpGroupDestroy", self.group)
