"""Decode of Tessera's CUDA back end: graphs of steps over K and V that the L2 cache can't hold, on one GPU.

    python3 decode.py [--library .../libtessera-cuda.so ...] [--filter REGEX] [--splits 0,2,4] [--rounds 7] [--json FILE]

Needs torch with CUDA. A graph holds a step for each of up to 64 sets of K and V out of 2.4 GB, lengths are read on the device; a
figure is the median of the rounds of a graph's time by events, contestants by turns. Contestants are each library with each number
of splits (0: what it chooses), and cuDNN through torch's scaled_dot_product_attention where it can do the row. Outputs are compared
with each other before anything is timed."""
import argparse
import json
import os
import re
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from contract import Attention, Backend, Tensor

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", action="append", default=[])
parser.add_argument("--filter", default="")
parser.add_argument("--splits", default="0")
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--json")
options = parser.parse_args()
libraries = options.library or [os.path.join(here, "../../backends/cuda/lib/libtessera-cuda.so")]

POOL = 2_400_000_000
FORMATS = {"f16": (2, 2), "bf16": (3, 2), "f8": (4, 1), "q8": (5, 34 / 32), "q4": (6, 18 / 32)}  # dtype, bytes an element


def case(format, batch, keys, layout="bshd", page=0, heads=32, kv_heads=8, dim=128, queries=1, skew=False):
    name = f"{format} {'skew' if skew else ''}{batch}x{keys} {f'page{page}' if page else layout}"
    if (heads, kv_heads) != (32, 8):
        name += f" {heads}:{kv_heads}"
    if dim != 128:
        name += f" D{dim}"
    if queries != 1:
        name += f" Sq{queries}"
    return locals()


CASES = [
    *(case(f, b, s, layout) for f in FORMATS for layout in ("bshd", "bhsd")
      for b, s in ((1, 4096), (1, 16384), (1, 131072), (16, 4096), (16, 16384), (64, 8192))),
    *(case(f, b, s, page=p) for f in FORMATS for b, s in ((1, 131072), (16, 16384)) for p in (16, 256)),
    *(case(f, 64, 8192, page=16, skew=True) for f in FORMATS),
    *(case(f, 16, 16384, queries=4) for f in FORMATS),
    *(case(f, 16, 16384, heads=8 * g, kv_heads=8) for f in FORMATS for g in (1, 7, 12, 16)),
    *(case(f, 16, 131072, heads=32, kv_heads=1) for f in FORMATS),
    *(case(f, b, s, dim=64) for f in FORMATS for b, s in ((1, 131072), (16, 16384))),
    *(case(f, b, s, layout, dim=96) for f in FORMATS for layout in ("bshd", "bhsd") for b, s in ((1, 131072), (16, 16384))),
    *(case(f, b, s, dim=256) for f in FORMATS for b, s in ((1, 131072), (16, 16384))),
]


def pool_of(format):
    """Bytes whose every element, in whole blocks, is finite and about as large as a model's."""
    if format == "f8":
        return torch.randn(POOL // 2, device="cuda").to(torch.float8_e4m3fn).view(torch.uint8).repeat(2)
    if format in ("f16", "bf16"):
        dtype = torch.float16 if format == "f16" else torch.bfloat16
        return torch.randn(POOL // 2, device="cuda", dtype=dtype).view(torch.uint8)
    block = 34 if format == "q8" else 18
    blocks = torch.randint(0, 256, (POOL // block, block), device="cuda", dtype=torch.uint8)
    scale = (torch.rand(POOL // block, device="cuda") + 0.5) * (1 / 64 if format == "q8" else 1 / 4)
    blocks[:, :2] = scale.half().view(torch.uint8).view(-1, 2)
    return blocks.view(-1)


def lengths_of(c):
    if not c["skew"]:
        return [c["keys"]] * c["batch"]
    spread = [round(100 * (c["keys"] / 100) ** (i / (c["batch"] - 1))) for i in range(c["batch"])]
    return [spread[i * 29 % c["batch"]] for i in range(c["batch"])]


def sets_of(c, pool):
    """Tensors of each set: k, v and, where there are pages, the table."""
    dtype, size = FORMATS[c["format"]]
    rows = c["kv_heads"] * sum((n + c["page"] - 1) // c["page"] * c["page"] if c["page"] else c["keys"] for n in lengths_of(c))
    bytes_of_side = int(rows * c["dim"] * size) + 255 & ~255
    if c["format"] in ("q8", "q4"):  # sets begin with whole rows
        row = int(c["dim"] * size)
        bytes_of_side = -(-bytes_of_side // (128 * row)) * 128 * row
    count = max(2, min(64, POOL // (2 * bytes_of_side)))
    heads, keys, dim = c["kv_heads"], c["keys"], c["dim"]
    if c["page"]:
        shape, stride = (rows // heads // c["page"], c["page"], heads, dim), (c["page"] * heads * dim, heads * dim, dim, 1)
    elif c["layout"] == "bshd":
        shape, stride = (c["batch"], keys, heads, dim), (keys * heads * dim, heads * dim, dim, 1)
    else:
        shape, stride = (c["batch"], keys, heads, dim), (keys * heads * dim, dim, keys * dim, 1)
    for i in range(count):
        at = pool.data_ptr() + 2 * i * bytes_of_side
        if 2 * (i + 1) * bytes_of_side > pool.numel():
            at = pool.data_ptr()
        yield {"k": Tensor.view(at, dtype, shape, stride), "v": Tensor.view(at + bytes_of_side, dtype, shape, stride)}


def table_of(c, lengths):
    needed = [(n + c["page"] - 1) // c["page"] for n in lengths]
    order = torch.randperm(sum(needed), dtype=torch.int32)
    table = torch.zeros(c["batch"], max(needed), dtype=torch.int32)
    at = 0
    for b, n in enumerate(needed):
        table[b, :n] = order[at:at + n]
        at += n
    return table.cuda()


def captured(steps):
    for step in steps[:2]:
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for step in steps:
            step()
    return graph


def peer(c, sets):
    """cuDNN's steps, or None."""
    if c["page"] or c["skew"] or c["queries"] != 1 or c["format"] not in ("f16", "bf16"):
        return None
    dtype = torch.float16 if c["format"] == "f16" else torch.bfloat16
    q = torch.randn(c["batch"], c["heads"], 1, c["dim"], device="cuda", dtype=dtype)
    inner = (c["batch"], c["keys"], c["kv_heads"], c["dim"]) if c["layout"] == "bshd" else (c["batch"], c["kv_heads"], c["keys"], c["dim"])
    count = c["batch"] * c["keys"] * c["kv_heads"] * c["dim"]
    base = pool.view(dtype)

    def of(t):
        at = (t.data - pool.data_ptr()) // 2
        x = base[at:at + count].view(inner)
        return x.transpose(1, 2) if c["layout"] == "bshd" else x

    def step(k, v):
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=c["heads"] != c["kv_heads"])

    return [lambda k=of(s["k"]), v=of(s["v"]): step(k, v) for s in sets]


def measure(c):
    dtype = torch.bfloat16 if c["format"] == "bf16" else torch.float16
    lengths = lengths_of(c)
    sets = list(sets_of(c, pool))
    q = torch.randn(c["batch"], c["queries"], c["heads"], c["dim"], device="cuda", dtype=dtype)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    table = table_of(c, lengths) if c["page"] else None
    graphs, shown, outs, alive = {}, {}, {}, []  # what graphs refer to has to stay: capturing empties torch's cache
    for path, backend in backends.items():
        for splits in map(int, options.splits.split(",")):
            name = f"{path} s{splits}" if splits else path
            out = torch.full_like(q, float("nan"))
            steps = []
            try:
                for s in sets:
                    tensors = {"q": Tensor.of(q), "out": Tensor.of(out), "seq_lens_k": Tensor.of(seq_lens), **s}
                    if table is not None:
                        tensors["page_table"] = Tensor.of(table)
                    desc = Attention(causal=1, num_splits=splits, max_seqlen_k=0)
                    step, explanation = backend.prepared(desc, tensors)
                    steps.append(step)
                steps[0]()
                torch.cuda.synchronize()
                outs[name] = out.clone()
                graphs[name] = captured(steps)
                alive.append((steps, out))
            except RuntimeError as error:
                print(f"{c['name']}: no {name}: {error}", flush=True)
                continue
            shown[name] = f"{explanation.kernel.decode()}: {explanation.notes.decode()}"
    first = next(iter(outs.values()))
    for name, out in outs.items():
        if not torch.isfinite(out).all() or (out.float() - first.float()).abs().max().item() > 2e-2 * first.float().abs().max().item():
            raise SystemExit(f"{c['name']}: {name} differs")
    try:
        steps = peer(c, sets)
        if steps:
            graphs["cudnn"] = captured(steps)
            alive.append(steps)
    except RuntimeError as error:
        print(f"{c['name']}: no cudnn: {str(error).splitlines()[0]}", flush=True)
    times = {name: [] for name in graphs}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    least = max(1, int(3e3 / (len(sets) * 100)))  # replays a timing
    for round in range(options.rounds + 1):
        for name, graph in graphs.items():
            begin.record()
            for _ in range(least):
                graph.replay()
            end.record()
            end.synchronize()
            if round > 0:
                times[name].append(begin.elapsed_time(end) * 1000 / (least * len(sets)))
    size = FORMATS[c["format"]][1]
    read = 2 * sum(lengths) * c["kv_heads"] * c["dim"] * size
    figures = {name: {"us": statistics.median(t), "rounds": t, "tb_per_s": read / statistics.median(t) / 1e6}
               for name, t in times.items()}
    return {**c, "sets": len(sets), "figures": figures, "explained": shown}


def line(row):
    text = [f"{row['name']:26s}"]
    for name, f in row["figures"].items():
        text.append(f"{name} {f['us']:7.2f} us ({min(f['rounds']):.2f}..{max(f['rounds']):.2f}) {f['tb_per_s']:.3f} TB/s")
    return "  ".join(text)


torch.manual_seed(0)
stream = torch.cuda.Stream()
torch.cuda.set_stream(stream)
backends = {os.path.basename(path).removesuffix(".so").removeprefix("libtessera-"): Backend(path) for path in libraries}
machine = torch.cuda.get_device_properties(0)
print(f"{machine.name}, {machine.multi_processor_count} multiprocessors, torch {torch.__version__}", flush=True)
rows, pool, pooled = [], None, None
for c in CASES:
    if not re.search(options.filter, c["name"]):
        continue
    if pooled != c["format"]:
        pool = None
        pool, pooled = pool_of(c["format"]), c["format"]
    rows.append(measure(c))
    print(line(rows[-1]), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": machine.name, "torch": torch.__version__, "rows": rows}, file, indent=1)
