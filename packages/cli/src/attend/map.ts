import { TesseraError } from "@tessera/core";
import { Scale } from "../map/colour.js";
import { panelSize } from "../map/layout.js";
import { rasterise } from "../map/raster.js";
import { drawMap } from "../map/svg.js";
import { textFor } from "../map/text.js";
import { writeAtomically } from "../ui/atomic.js";
import type { Progress } from "../ui/progress.js";
import type { Inputs } from "./inputs.js";
import type { Settings } from "./settings.js";
import { weightSource } from "./weights.js";

const mostHeads = 64;

/** @throws TesseraError */
export async function writeMap(
  path: string,
  inputs: Inputs,
  metadata: ReadonlyMap<string, string>,
  settings: Settings,
  progress: Progress,
): Promise<void> {
  const source = weightSource(inputs, settings);
  const { head } = settings;
  if (head !== undefined && head >= source.heads) {
    throw new TesseraError("invalid-argument", `--head is ${head}; allowed: 0 to ${source.heads - 1}`);
  }
  if (head === undefined && source.heads > mostHeads) {
    throw new TesseraError(
      "invalid-argument",
      `--map of all ${source.heads} heads; allowed: ${mostHeads}, or one by --head H`,
    );
  }
  const chosen = head === undefined ? Array.from({ length: source.heads }, (_, h) => h) : [head];
  const scale = new Scale(source.keys);
  const { cells } = panelSize(chosen.length);
  const heads = chosen.map((h) => {
    progress.show(`attention map: head ${h} of ${source.heads}`);
    return { head: h, raster: rasterise(source.queries, source.keys, source.rows(0, h), scale, cells) };
  });
  const name = inputs.prefix.replace(/[._/-]+$/, "");
  const which = chosen.length === 1 ? `head ${chosen[0]} of ${source.heads}` : `all ${source.heads} heads`;
  const svg = drawMap({
    title: `Attention weights${name === "" ? "" : ` · ${name}`} · ${which}`,
    options: describeOptions(inputs, settings, source.batches),
    heads,
    scale,
    queryText: textFor(metadata, source.queries),
    keyText: textFor(metadata, source.keys),
  });
  await writeAtomically(path, [new TextEncoder().encode(svg)]);
}

function describeOptions(inputs: Inputs, settings: Settings, batches: number): string {
  const dim = inputs.q.shape.at(-1)!;
  const parts = [settings.causal ? "causal" : "not causal"];
  if (settings.causal || settings.window) parts.push(`aligned ${settings.align ?? "bottom-right"}`);
  if (settings.window) parts.push(`window ${settings.window.map((w) => (w === -1 ? "∞" : w)).join(",")}`);
  parts.push(settings.scale === undefined ? `scale 1/√${dim}` : `scale ${settings.scale}`);
  if (settings.softcap) parts.push(`softcap ${settings.softcap}`);
  for (const [key, label] of [
    ["bias", "bias"],
    ["mask", "mask"],
    ["alibiSlopes", "ALiBi"],
    ["sinks", "sinks (rows sum to less than 1)"],
    ["cuSeqLensQ", "packed sequences"],
  ] as const) {
    if (inputs[key] !== undefined) parts.push(label);
  }
  if (batches > 1) parts.push(`batch entry 0 of ${batches}`);
  return parts.join(" · ");
}
