"""Tessera's CUDA back end beside torch's scaled_dot_product_attention (FlashAttention-2 and cuDNN), in one run on one GPU.

    python3 run.py [--library .../libtessera-cuda.so ...] [--filter REGEX] [--kernel NAME ...] [--rounds 6] [--rep 60] [--json FILE]

Needs torch with CUDA and triton. Everything is timed the same way: triton's do_bench, which empties the L2 cache before each
call and times it by events; contestants take turns, round after round, each round beginning with another and every second one
backwards, because the card is slower behind whoever made it hot; a figure is the median of the rounds' medians.
--kernel: forced variants to time besides what the back end chooses. Further libraries: other versions, named by their files. Inputs are standard normal, [B,S,H,D] in memory, as
models hold them; outputs are compared with FlashAttention-2's or cuDNN's before anything is timed. TFLOP/s count causal as half,
and a window as what it sees."""
import argparse
import json
import math
import os
import re
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

from contract import Backend

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", action="append", default=[])
parser.add_argument("--filter", default="")
parser.add_argument("--kernel", action="append", default=[])
parser.add_argument("--rounds", type=int, default=6)
parser.add_argument("--rep", type=int, default=60, help="milliseconds of timed calls a turn")
parser.add_argument("--json")
options = parser.parse_args()

PEERS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
half, brain = torch.float16, torch.bfloat16


def case(name, dtype, batch, heads, kv_heads, tokens, dim, causal=True, window=None, at_least=()):
    """at_least: what is wanted of what the back end chooses: (ratio to FlashAttention-2, ratio to cuDNN)."""
    return locals()


CASES = [
    *(case(f"causal f16 {s}", half, 4, 32, 32, s, 128, at_least=(1.05, 1.12)) for s in (1024, 2048, 4096, 8192, 16384)),
    *(case(f"causal bf16 {s}", brain, 4, 32, 32, s, 128, at_least=(None, 1.12)) for s in (1024, 2048, 4096, 8192, 16384)),
    *(case(f"full f16 {s}", half, 4, 32, 32, s, 128, causal=False, at_least=(1.0, r)) for s, r in ((2048, 1.04), (8192, 1.1))),
    *(case(f"gqa 32:8 {s}", half, 4, 32, 8, s, 128, at_least=(1.0, r)) for s, r in ((2048, 1.08), (8192, 1.13))),
    *(case(f"gqa 32:4 {s}", half, 4, 32, 4, s, 128, at_least=(1.0, r)) for s, r in ((2048, 1.08), (8192, 1.13))),
    *(case(f"d64 {s}", half, 4, 32, 32, s, 64, at_least=(1.0, r)) for s, r in ((2048, 1.02), (8192, 1.13))),
    *(case(f"d96 {s}", half, 4, 32, 32, s, 96) for s in (2048, 8192)),
    *(case(f"d192 {s}", half, 4, 16, 16, s, 192) for s in (2048, 8192)),
    *(case(f"d256 {s}", half, 4, 16, 16, s, 256, at_least=(1.0, 1.0)) for s in (2048, 8192)),
    *(case(f"b1 32:8 bf16 {s}", brain, 1, 32, 8, s, 128, at_least=(None, 1.0)) for s in (512, 2048)),
    case("window 1024 of 16384", half, 4, 32, 32, 16384, 128, window=1023),
]


def visible(c):
    """Pairs of query and key of one head. Causal counts as half, as is the custom."""
    s = c["tokens"]
    if c["window"] is not None:
        return sum(min(i, c["window"]) + 1 for i in range(s))
    return s * s / 2 if c["causal"] else s * s


def contestants(c):
    make = lambda heads: torch.randn(c["batch"], c["tokens"], heads, c["dim"], device="cuda", dtype=c["dtype"])
    q, k, v = make(c["heads"]), make(c["kv_heads"]), make(c["kv_heads"])
    found = {}
    outputs = {}
    if c["window"] is None:
        for name, choice in PEERS.items():
            def run(choice=choice, q=q.transpose(1, 2), k=k.transpose(1, 2), v=v.transpose(1, 2)):
                with sdpa_kernel([choice]):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=c["causal"], enable_gqa=c["heads"] != c["kv_heads"])
            try:
                outputs[name] = run().transpose(1, 2)
                found[name] = run
            except RuntimeError as error:
                print(f"{c['name']}: no {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    for name, (library, kernel) in ours.items():
        try:
            found[name], outputs[name], chosen = library.attention(q, k, v, c["causal"], kernel, c["window"])
        except RuntimeError as error:
            print(f"{c['name']}: no {name}: {error}", file=sys.stderr)
            continue
        found[name]()
        if name == "chosen":
            picked = chosen
    truth = outputs.get("fa2", outputs.get("cudnn"))
    for name, out in outputs.items():
        worst = 0.0 if truth is None else (out.float() - truth.float()).abs().max().item()
        limit = 2e-2 if c["dtype"] is half else 1.2e-1
        if not worst <= limit or not torch.isfinite(out).all():
            raise SystemExit(f"{c['name']}: {name} differs by {worst}")
    return found, picked


def measure(c):
    found, picked = contestants(c)
    times = {name: [] for name in found}
    order = list(found)
    for round in range(options.rounds):
        turns = order[round // 2 % len(order):] + order[:round // 2 % len(order)]
        for name in turns if round % 2 == 0 else reversed(turns):
            times[name].append(do_bench(found[name], warmup=10, rep=options.rep, return_mode="median"))
    operations = 4 * c["batch"] * c["heads"] * c["dim"] * visible(c)
    figures = {name: {"ms": statistics.median(t), "rounds": t, "tflops": operations / statistics.median(t) / 1e9}
               for name, t in times.items()}
    return {**{key: value for key, value in c.items() if key != "dtype"}, "dtype": str(c["dtype"])[6:], "picked": picked,
            "figures": figures}


def line(row):
    figures = row["figures"]
    text = [f"{row['name']:22s}"] + [f"{name} {f['tflops']:6.1f}" for name, f in figures.items()] + [f"({row['picked']})"]
    for name in ours:
        for peer, wanted in zip(PEERS, row["at_least"] or (None, None)):
            if name in figures and peer in figures:
                ratio = figures[peer]["ms"] / figures[name]["ms"]
                goal = f" (wanted {wanted})" if wanted and name == "chosen" else ""
                text.append(f"{name}/{peer} {ratio:.3f}{goal}")
    return "  ".join(text)


torch.manual_seed(0)
libraries = {os.path.basename(path).removesuffix(".so").removeprefix("libtessera-"): Backend(path)
             for path in options.library or [os.path.join(here, "../../backends/cuda/lib/libtessera-cuda.so")]}
first, *others = libraries
ours = {"chosen": (libraries[first], None), **{kernel: (libraries[first], kernel) for kernel in options.kernel},
        **{name: (libraries[name], None) for name in others}}
machine = torch.cuda.get_device_properties(0)
print(f"{machine.name}, {machine.multi_processor_count} multiprocessors, torch {torch.__version__}, "
      f"cuDNN {torch.backends.cudnn.version()}; TFLOP/s", flush=True)
rows = []
for c in CASES:
    if re.search(options.filter, c["name"]):
        rows.append(measure(c))
        print(line(rows[-1]), flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"device": machine.name, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                           "rows": rows}, file, indent=1)
