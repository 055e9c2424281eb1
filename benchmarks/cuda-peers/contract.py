"""The part of the C contract (packages/core/include/tessera/tessera.h) that a benchmark needs, over ctypes and torch tensors."""
import ctypes as C

import torch

DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.int32: 8}
# Members of tsr_backend after its two strings, in order.
FUNCTIONS = (
    "probe device_info context_create context_destroy last_error stream_create stream_wrap stream_destroy stream_native "
    "stream_synchronize event_create event_destroy event_record event_synchronize event_elapsed stream_wait buffer_create "
    "buffer_wrap buffer_destroy buffer_data buffer_bytes copy fill kernel_count kernel_info supports explain "
    "attention_workspace attention kv_append decode_workspace decode merge graph_begin graph_end graph_launch graph_destroy"
).split()


class Tensor(C.Structure):
    _fields_ = [("struct_size", C.c_uint32), ("dtype", C.c_int32), ("data", C.c_void_p), ("rank", C.c_int32),
                ("reserved", C.c_uint32), ("shape", C.c_int64 * 4), ("stride", C.c_int64 * 4), ("bytes", C.c_uint64)]

    @classmethod
    def of(cls, t):
        four = C.c_int64 * 4
        return cls(C.sizeof(cls), DTYPES[t.dtype], t.data_ptr(), t.dim(), 0, four(*t.shape), four(*t.stride()), 0)

    @classmethod
    def view(cls, address, dtype, shape, stride):
        """Memory that torch has no type for: `dtype` by its number in the contract, strides in elements."""
        four = C.c_int64 * 4
        return cls(C.sizeof(cls), dtype, address, len(shape), 0, four(*shape), four(*stride), 0)


class Attention(C.Structure):
    _fields_ = (
        [("struct_size", C.c_uint32), ("present", C.c_uint32)]
        + [(name, C.POINTER(Tensor)) for name in ("q", "k", "v", "out", "lse")]
        + [("scale", C.c_float), ("softcap", C.c_float), ("causal", C.c_int32), ("align", C.c_int32),
           ("window_left", C.c_int64), ("window_right", C.c_int64)]
        + [(name, C.POINTER(Tensor)) for name in
           ("query_offset", "alibi_slopes", "bias", "mask", "sinks", "seq_lens_q", "seq_lens_k", "cu_seqlens_q", "cu_seqlens_k")]
        + [("max_seqlen_q", C.c_int64), ("max_seqlen_k", C.c_int64)]
        + [(name, C.POINTER(Tensor)) for name in ("page_table", "k_scale", "v_scale")]
        + [("kernel", C.c_char_p), ("num_splits", C.c_int32), ("reserved", C.c_uint32), ("workspace", C.c_void_p),
           ("workspace_bytes", C.c_uint64), ("cancel", C.c_void_p)]
    )


class ContextDesc(C.Structure):
    _fields_ = [("struct_size", C.c_uint32), ("device", C.c_int32), ("threads", C.c_int32), ("reserved", C.c_uint32)]


class Explanation(C.Structure):
    _fields_ = [("struct_size", C.c_uint32), ("family", C.c_int32), ("kernel", C.c_char * 64), ("numbers", C.c_int32 * 6),
                ("workspace_bytes", C.c_uint64), ("notes", C.c_char * 512), ("rejections", C.c_void_p),
                ("rejection_capacity", C.c_uint32), ("rejection_count", C.c_uint32)]


class Table(C.Structure):
    _fields_ = ([("struct_size", C.c_uint32), ("abi_version", C.c_uint32), ("name", C.c_char_p), ("version", C.c_char_p)]
                + [(name, C.c_void_p) for name in FUNCTIONS])


class Backend:
    """A context of one back end, on torch's current stream."""

    def __init__(self, path):
        entry = C.CDLL(path).tsr_backend_entry
        entry.restype, entry.argtypes = C.POINTER(Table), [C.c_uint32]
        table = entry(1)
        if not table:
            raise SystemExit(f"{path}: speaks another version of the contract")
        status = {name: C.CFUNCTYPE(C.c_int32, *types)(getattr(table.contents, name)) for name, types in {
            "context_create": (C.POINTER(ContextDesc), C.POINTER(C.c_void_p)),
            "stream_wrap": (C.c_void_p, C.c_void_p, C.POINTER(C.c_void_p)),
            "explain": (C.c_void_p, C.POINTER(Attention), C.POINTER(Explanation)),
            "attention_workspace": (C.c_void_p, C.POINTER(Attention), C.POINTER(C.c_uint64)),
            "attention": (C.c_void_p, C.c_void_p, C.POINTER(Attention)),
        }.items()}
        self.last_error = C.CFUNCTYPE(C.c_char_p, C.c_void_p)(table.contents.last_error)
        self.functions, self.context, self.stream = status, C.c_void_p(), C.c_void_p()
        desc = ContextDesc(C.sizeof(ContextDesc), torch.cuda.current_device(), 0, 0)
        self.call("context_create", C.byref(desc), C.byref(self.context), context=False)
        self.use(torch.cuda.current_stream())

    def use(self, stream):
        """From now on, enqueue to that stream of torch's."""
        self.call("stream_wrap", stream.cuda_stream, C.byref(self.stream))

    def call(self, name, *arguments, context=True):
        if self.functions[name](*((self.context,) if context else ()), *arguments) != 0:
            raise RuntimeError(self.last_error(self.context).decode())

    def attention(self, q, k, v, causal, kernel=None, window=None):
        """A call to make again and again, its output [B,S,H,D], and the kernel it runs. q, k, v: [B,S,H,D]."""
        out = torch.full(q.shape[:3] + v.shape[3:], float("nan"), dtype=q.dtype, device=q.device)
        desc = Attention(causal=int(causal), kernel=kernel and kernel.encode())
        if window is not None:
            desc.present, desc.window_left, desc.window_right = 2, window, -1
        run, explanation = self.prepared(desc, {n: Tensor.of(t) for n, t in zip("q k v out".split(), (q, k, v, out))}, (q, k, v))
        return run, out, explanation.kernel.decode()

    def prepared(self, desc, tensors, alive=()):
        """A call of a description to make again and again, with a workspace of its own, and the back end's explanation."""
        desc.struct_size = C.sizeof(Attention)
        for name, t in tensors.items():
            setattr(desc, name, C.pointer(t))
        bytes_needed = C.c_uint64()
        self.call("attention_workspace", C.byref(desc), C.byref(bytes_needed))
        workspace = torch.empty(max(1, bytes_needed.value), dtype=torch.uint8, device="cuda")
        desc.workspace, desc.workspace_bytes = workspace.data_ptr(), bytes_needed.value
        explanation = Explanation(struct_size=C.sizeof(Explanation))
        self.call("explain", C.byref(desc), C.byref(explanation))
        function, context, stream, argument = self.functions["attention"], self.context, self.stream, C.byref(desc)

        def run(alive=(tensors, workspace, alive)):
            if function(context, stream, argument) != 0:
                raise RuntimeError(self.last_error(context).decode())

        return run, explanation
