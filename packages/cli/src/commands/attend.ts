import { type Command, Option } from "commander";
import { attend } from "../attend/attend.js";
import {
  append,
  cacheTypes,
  checkPaths,
  checkSettings,
  finite,
  notNegative,
  type Settings,
  wholeFrom,
  windowOf,
} from "../attend/settings.js";
import type { Io } from "../ui/io.js";

const help = `
FILE holds q [S,H,D] or [B,S,H,D], k and v (F32, F16 or BF16), and where wanted bias, mask, sinks, alibi_slopes,
seq_lens_q, seq_lens_k, cu_seqlens_q, cu_seqlens_k. OUT gets out (q's type) and lse (F32).

Examples
  $ tessera attend qkv.safetensors --causal --check
  $ tessera attend qkv.safetensors --prefix layer3. --causal -o out.safetensors --map layer3.svg
  $ tessera attend qkv.safetensors --causal --kv-dtype q8_0 --check --json

Exit codes: 0 good, 1 out of tolerance (--check), 2 wrong usage or bad file,
3 no usable device, or not enough memory.`;

export function addAttend(program: Command, io: Io): void {
  program
    .command("attend")
    .summary("compute attention on a safetensors file; check it, draw it")
    .description("Compute attention on the tensors of a safetensors file.")
    .argument("<file>", "safetensors file with q, k and v")
    .option("-o, --output <file>", "write out and lse there (safetensors)")
    .addOption(
      new Option("--prefix <text>", "read TEXTq, TEXTk, ...; repeat it for several layers")
        .argParser<readonly string[]>(append)
        .default([], "none"),
    )
    .option("--causal", "a query sees no key after its own position")
    .addOption(new Option("--align <how>", "where queries stand among the keys").choices(["bottom-right", "top-left"]))
    .option("--window <left,right>", "keys visible around a query's position, inclusive; -1 = unbounded", windowOf)
    .option("--scale <x>", "factor of q·k (default: 1/√D)", finite)
    .option("--softcap <x>", "scores become x·tanh(score/x); 0 = off", notNegative)
    .option("--backend <name>", "cpu, cuda, hip, webgpu or reference (default: the best usable; TESSERA_BACKEND)")
    .option("--device <n>", "device number of the back end", wholeFrom(0))
    .option("--library <path>", "load this back end's shared library")
    .option("--threads <n>", "CPU threads (default: TESSERA_THREADS, else all cores)", wholeFrom(1))
    .option("--kernel <name>", "force a kernel variant")
    .option("--num-splits <n>", "parts to split the keys into; 0 = let the back end choose", wholeFrom(0))
    .addOption(new Option("--kv-dtype <type>", "run through a KV cache of this type").choices(cacheTypes))
    .option("--check", "compare with the float64 oracle, and with out and lse if FILE holds them")
    .option("--map <file.svg>", "draw the attention weights")
    .option("--head <h>", "draw this query head only (default: all)", wholeFrom(0))
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async (file: string, settings: Settings) => {
      checkPaths(file, settings);
      checkSettings(settings);
      io.setExitCode(await attend(file, settings, io));
    });
}
