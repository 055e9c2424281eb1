"""What each option costs against plain causal attention, and beside torch's FlexAttention, which compiles a kernel for it; in one run on one GPU.

    python3 features.py [--library .../libtessera-cuda.so ...] [--kernel NAME ...] [--tokens 4096] [--flex] [--rounds 6] [--json FILE]

Needs torch with CUDA and triton. fp16, batch 4, 32 query and 8 KV heads, D 128, causal. Timed as run.py does. --kernel: forced variants to
time besides what the back end chooses, where they can. Further libraries: other versions, named by their files. Outputs of all
contestants of a case are compared before anything is timed."""
import argparse
import json
import os
import statistics
import sys

import torch
from triton.testing import do_bench

from contract import Attention, Backend, Tensor

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", action="append", default=[])
parser.add_argument("--kernel", action="append", default=[])
parser.add_argument("--tokens", type=int, default=4096)
parser.add_argument("--flex", action="store_true")
parser.add_argument("--rounds", type=int, default=6)
parser.add_argument("--json")
options = parser.parse_args()

torch.manual_seed(0)
B, H, HKV, S, D = 4, 32, 8, options.tokens, 128
make = lambda *shape, dtype=torch.float16: torch.randn(*shape, device="cuda", dtype=dtype)
q, k, v = make(B, S, H, D), make(B, S, HKV, D), make(B, S, HKV, D)
slopes = 2.0 ** (-8.0 * torch.arange(1, H + 1, device="cuda") / H)
bias = make(1, H, S, S)
mask = torch.rand(1, 1, S, S, device="cuda") < 0.9
mask |= torch.eye(S, dtype=torch.bool, device="cuda")
sinks = make(H, dtype=torch.float32)

# Name, members of the description, and what FlexAttention does to a score.
CASES = [
    ("plain", {}, None),
    ("sinks", {"sinks": sinks}, None),
    ("soft cap", {"softcap": 30.0}, lambda s, b, h, i, j: 30.0 * torch.tanh(s / 30.0)),
    ("ALiBi", {"alibi_slopes": slopes}, lambda s, b, h, i, j: s - slopes[h] * (i - j)),
    ("bias", {"bias": bias}, lambda s, b, h, i, j: s + bias[0, h, i, j]),
    ("mask", {"mask": mask}, lambda s, b, h, i, j: torch.where(mask[0, 0, i, j], s, -float("inf"))),
]


def tensor(t):
    return Tensor.view(t.data_ptr(), 7, t.shape, t.stride()) if t.dtype is torch.bool else Tensor.of(t)


def prepare(library, kernel, members):
    out = torch.full_like(q, float("nan"))
    desc = Attention(causal=1, kernel=kernel and kernel.encode(), softcap=members.get("softcap", 0.0))
    given = {"q": q, "k": k, "v": v, "out": out, **{n: t for n, t in members.items() if n != "softcap"}}
    run, explanation = library.prepared(desc, {n: tensor(t) for n, t in given.items()}, tuple(given.values()))
    return run, out, explanation.kernel.decode()


def flex(score):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)
    blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device="cuda")
    qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
    return lambda: compiled(qt, kt, vt, score_mod=score, block_mask=blocks, enable_gqa=True)


def measure(name, members, score):
    found, outputs, kernels = {}, {}, {}
    for title, (library, kernel) in ours.items():
        try:
            found[title], outputs[title], kernels[title] = prepare(library, kernel, members)
            found[title]()
        except RuntimeError as error:
            print(f"{name}: no {title}: {error}", file=sys.stderr)
            found.pop(title, None), outputs.pop(title, None)
    if options.flex and (score or not members):
        found["flex"] = flex(score)
        outputs["flex"] = found["flex"]().transpose(1, 2)
    truth = next(iter(outputs.values())).float()
    for title, out in outputs.items():
        worst = (out.float() - truth).abs().max().item()
        if not worst <= 2e-2 or not torch.isfinite(out).all():
            raise SystemExit(f"{name}: {title} differs by {worst}")
    times = {title: [] for title in found}
    order = list(found)
    for round in range(options.rounds):
        turns = order[round // 2 % len(order):] + order[:round // 2 % len(order)]
        for title in turns if round % 2 == 0 else reversed(turns):
            times[title].append(do_bench(found[title], warmup=10, rep=60, return_mode="median"))
    return {"case": name, "kernels": kernels, "ms": {title: statistics.median(t) for title, t in times.items()}, "rounds": times}


libraries = {os.path.basename(path).removesuffix(".so").removeprefix("libtessera-"): Backend(path)
             for path in options.library or [os.path.join(here, "../../backends/cuda/lib/libtessera-cuda.so")]}
first = next(iter(libraries))
ours = {"chosen": (libraries[first], None)}
for title, library in libraries.items():
    if title != first:
        ours[title] = (library, None)
    for kernel in options.kernel:
        ours[kernel if title == first else f"{title} {kernel}"] = (library, kernel)
machine = torch.cuda.get_device_properties(0)
print(f"{machine.name}, torch {torch.__version__}; fp16 B {B}, {H}:{HKV} heads, S {S}, D {D}, causal; ms", flush=True)
rows = []
for c in CASES:
    rows.append(measure(*c))
    row = rows[-1]
    print(f"{row['case']:10s} " + "  ".join(f"{title} {ms:.3f}" for title, ms in row["ms"].items())
          + f"  ({row['kernels'].get('chosen')})", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": machine.name, "torch": torch.__version__, "tokens": S, "rows": rows}, file, indent=1)
