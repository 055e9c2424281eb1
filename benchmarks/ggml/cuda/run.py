#!/usr/bin/env python3
"""ggml's CUDA back end with the plug-in and without, on an NVIDIA GPU: llama.cpp's own test of FLASH_ATTN_EXT, the operator's
rate, and a model of random weights end to end. Needs what build.mjs made, cuBLAS, and numpy for the model; takes some 4 minutes.

  python3 run.py BIN OUT [--engine FOLDER] [--seconds 300] [--skip test,op,model]

BIN: build.mjs's folder bin. OUT: a folder for results.json and logs. FOLDER: that of libtessera-cuda.so (default BIN).
SECONDS: nothing is begun after so many.
"""
import argparse, glob, json, os, re, struct, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("bin")
parser.add_argument("out")
parser.add_argument("--engine")
parser.add_argument("--seconds", type=float, default=300)
parser.add_argument("--skip", default="")
arguments = parser.parse_args()
bin_folder, out = os.path.abspath(arguments.bin), os.path.abspath(arguments.out)
os.makedirs(out, exist_ok=True)
results = {"op": [], "model": [], "test": []}
began = time.time()


def cublas_folders():
    """PyTorch's wheels carry cuBLAS: the loader has to be told where."""
    found = [os.environ.get("LD_LIBRARY_PATH", "")]
    for path in sys.path:
        found += [os.path.dirname(file) for file in glob.glob(path + "/nvidia/**/libcublas*.so.1[23]", recursive=True)]
    return ":".join(dict.fromkeys(filter(None, found)))


plain = {key: value for key, value in os.environ.items() if not key.startswith(("TESSERA_", "GGML_"))}
plain["LD_LIBRARY_PATH"] = cublas_folders()
ours = {
    **plain,
    "GGML_BACKEND_PATH": f"{bin_folder}/libggml-tessera-2.so",
    "TESSERA_BACKEND_PATH": os.path.abspath(arguments.engine or bin_folder),
    "TESSERA_GGML_LOG": "1",
}
take = {**ours, "TESSERA_GGML_SMALL": "take"}


def call(program, args, env, name, cwd=None, timeout=240):
    """stdout, stderr and status; all go to a log. The programs look for ggml's back ends beside themselves."""
    start = time.time()
    timeout = min(timeout, began + arguments.seconds - start)
    if timeout < 2:
        return "", "", "no time left"
    try:
        done = subprocess.run([f"{bin_folder}/{program}", *map(str, args)], env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout)
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        texts = [text.decode() if isinstance(text, bytes) else text or "" for text in (error.stdout, error.stderr)]
        status, stdout, stderr = "timeout", *texts
    with open(f"{out}/log.txt", "a") as log:
        log.write(f"== {name}: {program} {args} -> {status} after {time.time() - start:.1f} s\n{stdout[-20000:]}\n{stderr[-8000:]}\n")
    if status != 0:
        print(f"{name}: ended with {status}: {(stderr or stdout).strip().splitlines()[-1:]}", flush=True)
    return stdout, stderr, status


def save():
    results["seconds"] = round(time.time() - began, 1)
    with open(f"{out}/results.json", "w") as file:
        json.dump(results, file, indent=1)


def calls(stderr):
    found = re.findall(r"(\d+) calls so far: (\d+) by the mask's shape, (\d+) with its cells, (\d+) without", stderr)
    return dict(zip(("calls", "by_shape", "with_bias", "without_mask"), map(int, found[-1]))) if found else None


# ------------------------------------------------------------------------------------------------------------------- test

# What the engine takes: other cases would be ggml's, whose kernels this build has for some only.
TESTS = [
    rf"hsk={dims},hsv={dims},.*nb=(\d|1\d|[3-9]\d),.*max_bias=0\.0+,.*type_K=f16,type_V=f16,.*v_is_view_of_k=0"
    for dims in (64, 128, 256)
] + [
    r"hsk=(40|72|80|96),.*max_bias=0\.0+,.*type_K=f16,type_V=f16,.*v_is_view_of_k=0",
    r"hsk=(64|128|256),.*kv=(113|512|1024),nb=[123],.*max_bias=0\.0+,.*type_K=q8_0,type_V=q8_0,.*v_is_view_of_k=0",
    r"hsk=(64|128|256),.*kv=(113|512|1024),nb=[123],.*max_bias=0\.0+,.*type_K=q4_0,type_V=q4_0,.*v_is_view_of_k=0",
]


def test():
    for pattern in TESTS:
        stdout, stderr, status = call("test-backend-ops", ["test", "-o", "FLASH_ATTN_EXT", "-b", "CUDA0", "-p", pattern], take, "test")
        lines = [line for line in re.sub(r"\x1b\[[\d;]*m", "", stdout + "\n" + stderr).splitlines() if "FLASH_ATTN_EXT(" in line]
        row = {
            "pattern": pattern,
            "status": status,
            "passed": sum(line.rstrip().endswith("OK") for line in lines),
            "left": sum("not supported" in line for line in lines),
            "failed": [line.strip() for line in lines if not line.rstrip().endswith("OK") and "not supported" not in line][:8],
            **(calls(stderr) or {}),
        }
        results["test"].append(row)
        print("test", {key: row[key] for key in row if key != "pattern"}, flush=True)
        save()


# --------------------------------------------------------------------------------------------------------------- operator

# Type, queries, keys, nodes of one graph, rounds. A chunk of 512 queries is what llama.cpp computes by default.
OPERATORS = [
    ("f16", 4096, 4096, 8, 5),
    ("f16", 16384, 16384, 8, 3),
    ("f16", 512, 16384, 16, 10),
    ("f16", 2048, 16384, 16, 5),
    *[(kind, 1, keys, 16, 20) for keys in (4096, 16384, 131072) for kind in ("f16", "q8_0", "q4_0")],
]


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def nmse(a, b):
    import numpy as np

    x, y = (np.fromfile(path, dtype=np.float32).astype(np.float64) for path in (a, b))
    return float(((x - y) ** 2).sum() / (y**2).sum()) if x.size == y.size else None


def operator():
    with tempfile.TemporaryDirectory() as folder:
        for case in OPERATORS:
            row = dict(zip(("type", "queries", "keys", "nodes"), case))
            for name, env in (("ggml", plain), ("tessera", take)):
                stdout, stderr, status = call("attention", [*case, f"{folder}/{name}"], env, f"op {name}", timeout=60)
                if status == 0:
                    row[name] = round(median(json.loads(stdout.splitlines()[-1])["us"]), 2)
                if name == "tessera":
                    row["taken"] = calls(stderr)
            if "ggml" in row and "tessera" in row:
                row["times"] = round(row["ggml"] / row["tessera"], 2)
                row["nmse"] = nmse(f"{folder}/tessera", f"{folder}/ggml")
            results["op"].append(row)
            print("op", row, flush=True)
            save()


# ------------------------------------------------------------------------------------------------------------------ model

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, TOKENS = 8, 4096, 14336, 32, 8, 4096


def write_model(path):
    """GGUF of a Llama with random weights, f16: a block of normal numbers again and again."""
    import numpy as np

    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    U32, F32, STRING = 4, 6, 8
    keys = [("general.architecture", STRING, "llama"), ("tokenizer.ggml.model", STRING, "none")]
    for name, value in (
        ("context_length", 262144), ("embedding_length", WIDTH), ("block_count", LAYERS), ("feed_forward_length", HIDDEN),
        ("attention.head_count", HEADS), ("attention.head_count_kv", KV_HEADS), ("rope.dimension_count", WIDTH // HEADS),
        ("vocab_size", TOKENS),
    ):
        keys.append((f"llama.{name}", U32, value))
    keys += [("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.rope.freq_base", F32, 500000.0)]
    kv = WIDTH * KV_HEADS // HEADS
    tensors = [("token_embd.weight", (WIDTH, TOKENS)), ("output_norm.weight", (WIDTH,)), ("output.weight", (WIDTH, TOKENS))]
    for i in range(LAYERS):
        for name, shape in (
            ("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH, kv)), ("attn_v", (WIDTH, kv)),
            ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)), ("ffn_gate", (WIDTH, HIDDEN)), ("ffn_up", (WIDTH, HIDDEN)),
            ("ffn_down", (HIDDEN, WIDTH)),
        ):
            tensors.append((f"blk.{i}.{name}.weight", shape))
    block = (np.random.default_rng(1).standard_normal(1 << 23, dtype=np.float32) * 0.02).astype(np.float16).tobytes()
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
        for name, kind, value in keys:
            file.write(text(name) + struct.pack("<I", kind))
            file.write(text(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value))
        offset, sizes = 0, []
        for name, shape in tensors:
            wide = len(shape) == 1  # norms are f32
            size = int(np.prod(shape)) * (4 if wide else 2)
            file.write(text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape))
            file.write(struct.pack("<IQ", 0 if wide else 1, offset))
            sizes.append((wide, size))
            offset += (size + 31) // 32 * 32
        file.write(b"\0" * (-file.tell() % 32))
        at = 0
        for wide, size in sizes:
            data = np.ones(size // 4, dtype=np.float32).tobytes() if wide else None
            left = size
            while data is None and left > 0:
                piece = block[at : at + left]
                file.write(piece)
                left -= len(piece)
                at = (at + len(piece)) % len(block)
            if data is not None:
                file.write(data)
            file.write(b"\0" * (-file.tell() % 32))


JOBS = [
    "prefill:4096:512:f16", "prefill:16384:512:f16", "prefill:16384:2048:f16",
    "decode:4096:64:f16", "decode:16384:64:f16", "decode:16384:64:q8_0", "decode:16384:64:q4_0",
    "decode:131072:64:f16", "decode:131072:64:q8_0", "decode:131072:64:q4_0",
]


def model():
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") and os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize > 8 << 30 else None)
    try:
        path = f"{folder}/model.gguf"
        write_model(path)
        print(f"model written after {time.time() - began:.0f} s", flush=True)
        rows = {name: {"job": name} for name in JOBS}
        for contestant, env in (("ggml", plain), ("tessera", ours), ("tessera, all taken", take)):
            # The third is for decode alone: where the limit of what is worth it lies.
            jobs = [job for job in JOBS if contestant != "tessera, all taken" or job.startswith("decode:16384") or job.startswith("decode:4096")]
            where = f"{folder}/{contestant[:9]}"
            os.makedirs(where, exist_ok=True)
            stdout, stderr, _ = call("model", [path, *jobs], env, f"model {contestant}", cwd=where, timeout=150)
            for line in stdout.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    rows[row["job"]][contestant] = row["ms"]
            rows.setdefault("calls", {})[contestant] = calls(stderr)
            if contestant == "tessera":
                for job in jobs:
                    files = [f"{folder}/{who}/{job.replace(':', '-')}" for who in ("tessera", "ggml")]
                    if all(map(os.path.exists, files)):
                        rows[job]["nmse"] = nmse(*files)
        for row in rows.values():
            if "ggml" in row and "tessera" in row and "job" in row:
                row["times"] = round(row["ggml"] / row["tessera"], 3)
            print("model", row, flush=True)
        results["model"] = list(rows.values())
        save()
    finally:
        subprocess.run(["rm", "-rf", folder])


for name, step in (("op", operator), ("model", model), ("test", test)):
    if name not in arguments.skip.split(","):
        step()
        print(f"{name} done after {time.time() - began:.0f} s", flush=True)
save()
