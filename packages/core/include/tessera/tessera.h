/**
 * @file tessera.h
 * The contract between Tessera's back ends and whoever calls them: C11, no vendor header, no global state.
 *
 * A back end is a shared library that exports one symbol, ::tsr_backend_entry. It returns a table of functions, valid
 * for the life of the process (the library is never unloaded). docs/contract.md explains the contract at more length.
 *
 * Rules that hold for every function here
 *  - Every struct that a caller fills begins with `struct_size` and is otherwise zero-initialised; every zero is the
 *    default. A back end reads no further than `struct_size`, and treats what lies beyond as zero. If bytes beyond what
 *    the back end knows are not zero, the caller asks for something that it can't do: ::TSR_UNSUPPORTED. Sizes are
 *    multiples of 8, in every version, so that none ends within a member: others are ::TSR_INVALID_ARGUMENT.
 *  - Tables only grow at their end: check `struct_size` before using a member newer than the ABI version you compiled.
 *  - No exception, abort, exit or output crosses this boundary. A failure is a ::tsr_status, and ::tsr_backend::last_error
 *    has the text: the argument, its value, the allowed values.
 *  - Functions may be called from any thread, at the same time, also with one context. Destroying an object while another
 *    thread uses it is the one exception.
 *  - Calls that take a stream are ordered on it and return at once where the device has queues
 *    (::TSR_DEVICE_ASYNC); elsewhere (CPU) they return when the work is done. They allocate nothing, copy nothing behind
 *    the caller's back and leave the caller's current device as it was.
 *  - Shapes, strides and offsets count elements (never bytes) and are 64-bit.
 */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of this contract. A back end that can't speak the version asked for returns NULL from its entry. */
#define TSR_ABI_VERSION 1u

#if defined(_WIN32)
#define TSR_EXPORT __declspec(dllexport)
#else
#define TSR_EXPORT __attribute__((visibility("default")))
#endif

/* ---------------------------------------------------------------------------------------------------- scalars */

/** Outcome of a call. Fixed-width, so that its size is the same for every compiler. */
typedef int32_t tsr_status;
enum {
  TSR_OK = 0,
  /** The arguments mean something, but this back end or device can't do it. Nothing was launched. */
  TSR_UNSUPPORTED = 1,
  /** The arguments contradict the contract. Nothing was launched. */
  TSR_INVALID_ARGUMENT = 2,
  TSR_OUT_OF_MEMORY = 3,
  /** There is no such device, or it can't be used (driver missing, too old, hidden, ...). */
  TSR_DEVICE_UNAVAILABLE = 4,
  /** The device reported an error; the text has its name for it. */
  TSR_DEVICE_ERROR = 5,
  TSR_ABI_MISMATCH = 6,
  /** The caller's cancel flag was seen. Outputs are undefined. */
  TSR_ABORTED = 7,
  /** A defect of the back end. */
  TSR_INTERNAL = 8
};

/** Element type of a tensor. */
typedef int32_t tsr_dtype;
enum {
  TSR_DTYPE_NONE = 0,
  TSR_F32 = 1,
  TSR_F16 = 2,
  TSR_BF16 = 3,
  /** OCP e4m3fn: no infinities, saturating stores. */
  TSR_F8_E4M3 = 4,
  /** ggml's block of 32 values: fp16 scale d, 32 int8 q; value = d*q. 34 bytes. Head dim must be a multiple of 32. */
  TSR_Q8_0 = 5,
  /** ggml's block of 32 values: fp16 scale d, 16 bytes; value = d*(nibble-8), low nibbles are 0..15. 18 bytes. */
  TSR_Q4_0 = 6,
  /** One byte: 0 = false, anything else = true. */
  TSR_BOOL = 7,
  TSR_I32 = 8
};

/* ----------------------------------------------------------------------------------------------------- tensors */

#define TSR_MAX_RANK 4

/**
 * A strided view of memory that the device can address. The last dimension must be contiguous (stride 1) unless its
 * extent is 1; the other strides are >= 0 (0 repeats: an expanded view). For block formats (q8_0, q4_0) strides still
 * count elements and are multiples of 32.
 */
typedef struct tsr_tensor {
  uint32_t struct_size;
  tsr_dtype dtype;
  /** Device address of element [0, 0, ...]. May be NULL only if the tensor has no elements. */
  void* data;
  int32_t rank;
  uint32_t reserved;
  int64_t shape[TSR_MAX_RANK];
  int64_t stride[TSR_MAX_RANK];
  /** Bytes addressable from `data`; if not 0, a view that reaches further is refused. */
  uint64_t bytes;
} tsr_tensor;

/* --------------------------------------------------------------------------------------------------- attention */

/** How queries line up with keys when there is no explicit offset. */
typedef int32_t tsr_align;
enum {
  TSR_ALIGN_DEFAULT = 0,      /**< bottom-right */
  TSR_ALIGN_BOTTOM_RIGHT = 1, /**< offset = Sk_b - Sq_b: the last query sees the last key */
  TSR_ALIGN_TOP_LEFT = 2      /**< offset = 0 (PyTorch's is_causal) */
};

/** Which optional scalars of ::tsr_attention_desc are given. */
enum {
  TSR_HAS_SCALE = 1u << 0,
  TSR_HAS_WINDOW = 1u << 1
};

/**
 * One fused attention: out = softmax(mask(softcap(scale * q k^T) + bias - alibi)) v, by docs/semantics.md.
 *
 * Shapes, padded: q [B,Sq,Hq,D], k [B,Sk,Hkv,D], v [B,Sk,Hkv,Dv], out [B,Sq,Hq,Dv], lse [B,Hq,Sq].
 * Packed (cu_seqlens_q given): q [T,Hq,D], out [T,Hq,Dv], lse [Hq,T]. Packed keys (cu_seqlens_k): k [Tk,Hkv,D].
 * Paged (page_table given): k [pages,page_size,Hkv,D], v likewise; seq_lens_k is required.
 * Queries may be packed over padded or paged keys.
 */
typedef struct tsr_attention_desc {
  uint32_t struct_size;
  /** TSR_HAS_* bits. */
  uint32_t present;
  const tsr_tensor* q;
  const tsr_tensor* k;
  const tsr_tensor* v;
  /** f32, f16 or bf16. */
  const tsr_tensor* out;
  /** F32 or NULL: natural log of the sum of exp(score) over visible keys (and the sink). */
  const tsr_tensor* lse;

  /** With TSR_HAS_SCALE: any finite value. Otherwise 1/sqrt(D). */
  float scale;
  /** 0 = off; else s = softcap * tanh(s / softcap). Finite, >= 0. */
  float softcap;
  /** 0 or 1. */
  int32_t causal;
  tsr_align align;
  /** With TSR_HAS_WINDOW: keys i+offset-left ... i+offset+right inclusive; -1 = unbounded. */
  int64_t window_left;
  int64_t window_right;
  /** I32 [B] or NULL: offset of query 0 for each batch entry, in place of `align`. */
  const tsr_tensor* query_offset;

  /** F32 [Hq] or NULL: s -= slope_h * |i + offset - j|. */
  const tsr_tensor* alibi_slopes;
  /** F32, F16 or BF16 [B|1, Hq|1, Sq, Sk] or NULL. -inf hides a key; finite values are clamped to +-::TSR_BIAS_LIMIT. */
  const tsr_tensor* bias;
  /** BOOL [B|1, Hq|1, Sq, Sk] or NULL; true = visible. */
  const tsr_tensor* mask;
  /** F32 [Hq] or NULL: adds exp(sink_h) to the softmax denominator. */
  const tsr_tensor* sinks;

  /** I32 [B] or NULL. On a device whose memory the host can't read, values are clamped to [0, capacity]. */
  const tsr_tensor* seq_lens_q;
  const tsr_tensor* seq_lens_k;
  /** I32 [B+1] or NULL: starts of the packed sequences, from 0 to T. */
  const tsr_tensor* cu_seqlens_q;
  const tsr_tensor* cu_seqlens_k;
  /** Longest packed sequence, for sizing the launch; 0 = unknown, T is assumed. */
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;

  /** I32 [B, pages per sequence] or NULL: page of keys [n*page_size, (n+1)*page_size). Entries past a length are not read. */
  const tsr_tensor* page_table;

  /** F32 [Hkv] or NULL (1): what stored f8_e4m3 keys and values are multiplied by. */
  const tsr_tensor* k_scale;
  const tsr_tensor* v_scale;

  /** Name of the kernel variant to force, or NULL: let the back end choose. */
  const char* kernel;
  /** KV splits to force, 0 = let the back end choose. Variants that don't split accept 0 and 1; no more
   *  splits are made than there are tiles of keys. */
  int32_t num_splits;
  uint32_t reserved;

  /** Scratch of at least ::tsr_backend::attention_workspace bytes, 64-byte aligned, any contents. */
  void* workspace;
  uint64_t workspace_bytes;

  /** Polled by devices that compute in the call: when it becomes non-zero the call returns TSR_ABORTED. May be NULL. */
  const volatile int32_t* cancel;
} tsr_attention_desc;

/** A finite bias is clamped to +-2^126, so that it stays finite when a kernel turns it to base 2. */
#define TSR_BIAS_LIMIT 8.507059173023462e37f

/* ---------------------------------------------------------------------------------------------------- KV cache */

typedef int32_t tsr_rope_pairing;
enum {
  /** Pairs (x[i], x[i + dims/2]): GPT-NeoX, Hugging Face Llama. */
  TSR_ROPE_HALF = 1,
  /** Pairs (x[2i], x[2i + 1]): GPT-J, llama.cpp's Llama. */
  TSR_ROPE_INTERLEAVED = 2
};

/** Rotary embedding (Su et al., 2021): pair i turns by position * scale * theta^(-2i/dims). */
typedef struct tsr_rope_desc {
  uint32_t struct_size;
  tsr_rope_pairing pairing;
  /** > 0 and finite; 10000 in most models. */
  float theta;
  /** Position scale; 0 = 1. */
  float scale;
  /** Leading dimensions to rotate: even, <= D; 0 = D. */
  int32_t dims;
  uint32_t reserved;
  /** I32 [B,S] ([T] packed) or NULL: cache length + index of the new token. */
  const tsr_tensor* positions;
} tsr_rope_desc;

/** tsr_append_desc::flags */
enum {
  /** After the append lengths[b] += the new tokens of b, on the device. */
  TSR_APPEND_ADVANCE = 1u << 0
};

/**
 * Write S new tokens of each sequence at the end of its cache, rotated and converted to the cache's types.
 * Values are computed in fp32 and rounded once to the storage type (nearest even; f8 saturates; q8_0 and q4_0 as ggml's
 * reference quantisers do).
 */
typedef struct tsr_append_desc {
  uint32_t struct_size;
  uint32_t flags;
  /** New keys [B,S,Hkv,D] and values [B,S,Hkv,Dv], or [T,Hkv,D] with cu_seqlens; f32, f16 or bf16. */
  const tsr_tensor* k;
  const tsr_tensor* v;
  /** Optional: queries [B,S,Hq,D] ([T,Hq,D]) to rotate at the same positions, and where they go (may be q itself). */
  const tsr_tensor* q;
  const tsr_tensor* q_out;
  /** Cache [B,capacity,Hkv,D], or pages [pages,page_size,Hkv,D] with page_table. */
  const tsr_tensor* cache_k;
  const tsr_tensor* cache_v;
  const tsr_tensor* page_table;
  /** I32 [B], in (and out with TSR_APPEND_ADVANCE): tokens that each sequence holds already. */
  const tsr_tensor* lengths;
  /** I32 [B] or NULL: how many of the S new tokens of each sequence are real (the rest is padding). */
  const tsr_tensor* new_lens;
  /** I32 [B+1] or NULL: packed new tokens. */
  const tsr_tensor* cu_seqlens;
  /** F32 [Hkv] or NULL: f8_e4m3 stores x / scale. */
  const tsr_tensor* k_scale;
  const tsr_tensor* v_scale;
  /** NULL = no rotation. */
  const tsr_rope_desc* rope;
} tsr_append_desc;

/** One generation step: append (if given), then attention over the cache, fused as far as the back end can. */
typedef struct tsr_decode_desc {
  uint32_t struct_size;
  uint32_t reserved;
  const tsr_append_desc* append;
  /** Over the cache's tensors; seq_lens_k are the lengths after the append. */
  const tsr_attention_desc* attention;
} tsr_decode_desc;

/** Combine attention results over disjoint sets of keys. An empty part (lse = -inf) is the neutral element. */
typedef struct tsr_merge_desc {
  uint32_t struct_size;
  int32_t count;
  /** `count` outs of one shape, and their lse; f32, f16 or bf16. */
  const tsr_tensor* const* outs;
  const tsr_tensor* const* lses;
  const tsr_tensor* out;
  /** NULL if not wanted. */
  const tsr_tensor* lse;
} tsr_merge_desc;

/* ----------------------------------------------------------------------------------------------------- answers */

/** What a back end finds when it looks for its devices. */
typedef int32_t tsr_probe_state;
enum {
  TSR_PROBE_USABLE = 0,
  TSR_PROBE_DRIVER_MISSING = 1,
  TSR_PROBE_DRIVER_TOO_OLD = 2,
  TSR_PROBE_RUNTIME_MISSING = 3,
  TSR_PROBE_NO_DEVICE = 4,
  TSR_PROBE_HIDDEN_BY_ENVIRONMENT = 5,
  TSR_PROBE_ARCH_NOT_IN_BUILD = 6,
  TSR_PROBE_OUT_OF_MEMORY = 7,
  TSR_PROBE_ERROR = 8
};

#define TSR_TEXT 512
#define TSR_NAME 64

typedef struct tsr_probe_result {
  uint32_t struct_size;
  tsr_probe_state state;
  int32_t device_count;
  uint32_t reserved;
  /** Why the back end can't be used; empty if it can. */
  char reason[TSR_TEXT];
  /** What would mend it; empty if nothing is known to. */
  char fix[TSR_TEXT];
} tsr_probe_result;

/** tsr_device_info::caps */
enum {
  /** Calls enqueue and return; otherwise they compute before they return. */
  TSR_DEVICE_ASYNC = 1u << 0,
  /** Host and device read each other's memory: host pointers are device pointers. */
  TSR_DEVICE_HOST_MEMORY = 1u << 1,
  TSR_DEVICE_GRAPHS = 1u << 2
};

typedef struct tsr_device_info {
  uint32_t struct_size;
  int32_t index;
  tsr_probe_state state;
  uint32_t caps;
  char name[128];
  /** "x86-64 avx512", "sm_90", "gfx942", ... */
  char arch[TSR_NAME];
  /** PCI address or UUID where there is one. */
  char id[TSR_NAME];
  uint64_t memory_bytes;
  /** Cores, streaming multiprocessors or compute units. */
  int32_t compute_units;
  /** Shared memory that one block may use, in bytes; 0 on a CPU. */
  int32_t shared_bytes;
  /** Why this device can't be used; empty if it can. */
  char reason[TSR_TEXT];
  char fix[TSR_TEXT];
} tsr_device_info;

typedef int32_t tsr_kernel_family;
enum {
  TSR_FAMILY_PREFILL = 1,
  TSR_FAMILY_DECODE = 2
};

/** It runs only where a call names it: there to be measured, or less exact. Never chosen, never tuned. */
#define TSR_KERNEL_BY_NAME 1u
/** It rounds q to 8 bits (docs/semantics.md, "Numbers"); always with TSR_KERNEL_BY_NAME. */
#define TSR_KERNEL_ROUNDS_Q 2u
/** It takes elements of q, k and v below 2^-126 for 0, and sums too (docs/semantics.md, "Numbers"). */
#define TSR_KERNEL_FLUSHES 4u

/** One row of a back end's catalogue. */
typedef struct tsr_kernel_info {
  uint32_t struct_size;
  tsr_kernel_family family;
  char name[TSR_NAME];
  /** 1 if this device can run it; else `reason` says why not. */
  int32_t usable;
  /** Alignment in bytes that it needs of rows; 1 = none. */
  int32_t alignment;
  /** Bit (1 << tsr_dtype) for each type that q, and k and v, may have. */
  uint32_t q_dtypes;
  uint32_t kv_dtypes;
  int32_t max_head_dim;
  /** Head dims are multiples of this. */
  int32_t head_dim_step;
  /** Architectures, and what it does well, in words. */
  char arch[TSR_NAME];
  char summary[TSR_TEXT];
  char reason[TSR_TEXT];
  /** TSR_KERNEL_*. */
  uint32_t flags;
} tsr_kernel_info;

/** A variant that was passed over, and why. */
typedef struct tsr_rejection {
  char kernel[TSR_NAME];
  char reason[TSR_TEXT];
} tsr_rejection;

/** The kernel that would run. */
typedef struct tsr_explanation {
  uint32_t struct_size;
  tsr_kernel_family family;
  char kernel[TSR_NAME];
  /** Query rows and keys of a tile; pipeline stages; KV splits; threads (CPU) or threads of a block (GPU). */
  int32_t tile_q;
  int32_t tile_k;
  int32_t stages;
  int32_t splits;
  int32_t threads;
  int32_t shared_bytes;
  uint64_t workspace_bytes;
  /** Anything a user should know: approximations, NaN propagation, "never run on this hardware". */
  char notes[TSR_TEXT];
  /** Filled up to `rejection_capacity`; `rejection_count` is how many there were. */
  tsr_rejection* rejections;
  uint32_t rejection_capacity;
  uint32_t rejection_count;
} tsr_explanation;

typedef struct tsr_context_desc {
  uint32_t struct_size;
  int32_t device;
  /** CPU: threads to compute with; 0 = TESSERA_THREADS, else the cores that this process may use. GPUs ignore it. */
  int32_t threads;
  uint32_t reserved;
} tsr_context_desc;

typedef struct tsr_context tsr_context;
typedef struct tsr_stream tsr_stream;
typedef struct tsr_event tsr_event;
typedef struct tsr_buffer tsr_buffer;
typedef struct tsr_graph tsr_graph;

typedef int32_t tsr_copy_kind;
enum {
  TSR_COPY_HOST_TO_DEVICE = 1,
  TSR_COPY_DEVICE_TO_HOST = 2,
  TSR_COPY_DEVICE_TO_DEVICE = 3
};

/* ------------------------------------------------------------------------------------------------ the function table */

/** `stream` may be NULL everywhere: the context's own stream. */
typedef struct tsr_backend {
  uint32_t struct_size;
  uint32_t abi_version;
  /** "cpu", "cuda", "hip", ... */
  const char* name;
  /** Version of the library, "1.2.3". */
  const char* version;

  /** Look for devices. Never fails: what went wrong is in the result. */
  tsr_status (*probe)(tsr_probe_result* result);
  tsr_status (*device_info)(int32_t device, tsr_device_info* info);

  tsr_status (*context_create)(const tsr_context_desc* desc, tsr_context** context);
  void (*context_destroy)(tsr_context* context);
  /**
   * Text of the last call that failed on this thread with this context (NULL: a call that has none). Never NULL; valid
   * until this thread's next call.
   */
  const char* (*last_error)(const tsr_context* context);

  tsr_status (*stream_create)(tsr_context* context, tsr_stream** stream);
  /** Use a caller's cudaStream_t/hipStream_t. It's borrowed: destroying the wrapper leaves it alone. */
  tsr_status (*stream_wrap)(tsr_context* context, void* native, tsr_stream** stream);
  void (*stream_destroy)(tsr_stream* stream);
  /** The cudaStream_t/hipStream_t; NULL on a CPU. */
  void* (*stream_native)(tsr_context* context, tsr_stream* stream);
  tsr_status (*stream_synchronize)(tsr_context* context, tsr_stream* stream);

  tsr_status (*event_create)(tsr_context* context, tsr_event** event);
  void (*event_destroy)(tsr_event* event);
  tsr_status (*event_record)(tsr_context* context, tsr_event* event, tsr_stream* stream);
  tsr_status (*event_synchronize)(tsr_context* context, tsr_event* event);
  tsr_status (*event_elapsed)(tsr_context* context, tsr_event* start, tsr_event* stop, double* milliseconds);
  /** Later work on `stream` waits for `event`. */
  tsr_status (*stream_wait)(tsr_context* context, tsr_stream* stream, tsr_event* event);

  /** At least 256-byte aligned (64 on a CPU). */
  tsr_status (*buffer_create)(tsr_context* context, uint64_t bytes, tsr_buffer** buffer);
  /** Use a caller's device memory. Borrowed. */
  tsr_status (*buffer_wrap)(tsr_context* context, void* data, uint64_t bytes, tsr_buffer** buffer);
  void (*buffer_destroy)(tsr_buffer* buffer);
  void* (*buffer_data)(const tsr_buffer* buffer);
  uint64_t (*buffer_bytes)(const tsr_buffer* buffer);
  tsr_status (*copy)(tsr_context* context, tsr_stream* stream, void* dst, const void* src, uint64_t bytes,
                     tsr_copy_kind kind);
  tsr_status (*fill)(tsr_context* context, tsr_stream* stream, void* dst, uint8_t value, uint64_t bytes);

  /** The catalogue. */
  int32_t (*kernel_count)(tsr_context* context);
  tsr_status (*kernel_info)(tsr_context* context, int32_t index, tsr_kernel_info* info);

  /**
   * Answers of one selector: supports says TSR_OK exactly when attention would run. Workspace members are ignored. In
   * these three, tensors may have NULL data: contents (lengths, pages) are then not checked, alignment is taken as good.
   */
  tsr_status (*supports)(tsr_context* context, const tsr_attention_desc* desc);
  tsr_status (*explain)(tsr_context* context, const tsr_attention_desc* desc, tsr_explanation* explanation);
  tsr_status (*attention_workspace)(tsr_context* context, const tsr_attention_desc* desc, uint64_t* bytes);
  tsr_status (*attention)(tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc);

  tsr_status (*kv_append)(tsr_context* context, tsr_stream* stream, const tsr_append_desc* desc);
  tsr_status (*decode_workspace)(tsr_context* context, const tsr_decode_desc* desc, uint64_t* bytes);
  tsr_status (*decode)(tsr_context* context, tsr_stream* stream, const tsr_decode_desc* desc);
  tsr_status (*merge)(tsr_context* context, tsr_stream* stream, const tsr_merge_desc* desc);

  /** Record what is enqueued on `stream` between begin and end; launch replays it. TSR_UNSUPPORTED without TSR_DEVICE_GRAPHS. */
  tsr_status (*graph_begin)(tsr_context* context, tsr_stream* stream);
  tsr_status (*graph_end)(tsr_context* context, tsr_stream* stream, tsr_graph** graph);
  tsr_status (*graph_launch)(tsr_context* context, tsr_graph* graph, tsr_stream* stream);
  void (*graph_destroy)(tsr_graph* graph);
} tsr_backend;

/** Type of ::tsr_backend_entry, for dlsym. */
typedef const tsr_backend* (*tsr_backend_entry_fn)(uint32_t abi_version);

/** The one exported symbol. NULL if the back end can't speak `abi_version`. */
TSR_EXPORT const tsr_backend* tsr_backend_entry(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif
