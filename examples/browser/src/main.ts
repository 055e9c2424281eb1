/** Reads the file, computes a layer on the visitor's device, shows how far off it is, how long it took, and the weights. */
import { checkAgainstOracleAsync, decode, type Engine, openEngine, oracleAsync, TesseraError } from "@tessera/core/web";
import { webgpu } from "@tessera/webgpu";
import file from "../../data/kjv-qkv.safetensors?url";
import { drawMap } from "./map.js";
import { type FileTensor, readTensors } from "./safetensors.js";

const $ = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const rounds = 5;

function tell(state: string, text: string): void {
  $("state").textContent = text;
  document.body.dataset.state = state;
}

function show(facts: readonly (readonly [string, string])[]): void {
  $("facts").replaceChildren(
    ...facts.map(([name, value]) => {
      const row = document.createElement("tr");
      const [head, cell] = [document.createElement("th"), document.createElement("td")];
      head.textContent = name;
      cell.textContent = value;
      row.append(head, cell);
      return row;
    }),
  );
}

function options(id: string, count: number): void {
  $(id).replaceChildren(...Array.from({ length: count }, (_, i) => new Option(String(i), String(i))));
}

async function compute(
  engine: Engine,
  tensors: ReadonlyMap<string, FileTensor>,
  layer: number,
  head: number,
): Promise<void> {
  tell("working", `Layer ${layer} …`);
  const take = (name: string) => tensors.get(`layer${layer}.${name}`)!;
  const half = (name: string) => {
    const { bytes, shape } = take(name);
    return { data: new Uint16Array(bytes), dtype: "f16" as const, shape: [1, ...shape] };
  };
  const [q, k, v] = [half("q"), half("k"), half("v")];
  const [, tokens, heads, dim] = q.shape as [number, number, number, number];
  const on = [q, k, v].map(({ data, dtype, shape }) => engine.tensor(data, { dtype, shape }));
  const call = { q: on[0]!, k: on[1]!, v: on[2]!, causal: true, returnLse: true } as const;

  const first = performance.now();
  const result = await engine.attention(call);
  const out = await result.out.read();
  const lse = (await result.lse.read()) as Float32Array;
  const compiled = performance.now() - first;
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    const again = await engine.attention(call);
    await engine.synchronize();
    times.push(performance.now() - start);
    again.out.dispose();
    again.lse.dispose();
  }
  for (const tensor of [...on, result.out, result.lse]) tensor.dispose();

  const problem = { q, k, v, causal: true };
  const start = performance.now();
  await oracleAsync(problem);
  const javascript = performance.now() - start;
  const check = await checkAgainstOracleAsync({
    options: problem,
    out: { data: out as Uint16Array, dtype: "f16", shape: q.shape },
    lse,
  });
  const stored = new Float32Array(take("out").bytes);
  const values = decode(out as Uint16Array, "f16");
  const distance = values.reduce((most, x, i) => Math.max(most, Math.abs(x - stored[i]!)), 0);
  const fastest = Math.min(...times);
  show([
    ["device", `${engine.device.name}${engine.device.caps.emulated ? " (played by the CPU)" : ""}`],
    ["kernel", engine.explain(problem).kernel],
    ["first call, with compiling", `${compiled.toFixed(0)} ms`],
    [`fastest of ${rounds}`, `${fastest.toFixed(1)} ms`],
    ["JavaScript, float64", `${javascript.toFixed(0)} ms`],
    [
      "largest distance from the stored result",
      `${distance.toExponential(2)} (allowed ${check.bound.toExponential(2)})`,
    ],
  ]);
  drawMap($<HTMLCanvasElement>("map"), {
    q: q.data,
    k: k.data,
    lse: lse.subarray(head * tokens, (head + 1) * tokens),
    tokens,
    heads,
    kvHeads: k.shape[2]!,
    dim,
    head,
  });
  const good = check.ok && distance <= check.bound;
  tell(
    good ? "good" : "bad",
    good ? "Within its bound of the stored result." : "NOT within its bound of the stored result.",
  );
}

async function main(): Promise<void> {
  const engine = await openEngine({ backend: webgpu() });
  const tensors = readTensors(await (await fetch(file)).arrayBuffer());
  options("layer", [...tensors.keys()].filter((name) => name.endsWith(".q")).length);
  options("head", tensors.get("layer0.q")!.shape[1]!);
  let queue = Promise.resolve();
  const update = () => {
    const [layer, head] = ["layer", "head"].map((id) => Number($<HTMLSelectElement>(id).value));
    queue = queue.then(() => compute(engine, tensors, layer!, head!)).catch(fail);
  };
  for (const id of ["layer", "head"]) $(id).addEventListener("change", update);
  update();
}

function fail(error: unknown): void {
  const why = error instanceof TesseraError ? `${error.code}: ${error.message}` : String(error);
  tell("failed", `This can't be shown here. ${why}`);
}

main().catch(fail);
