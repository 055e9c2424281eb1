/** The entry for pages: nothing of Node behind it, and an engine on a back end that the caller brings. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Backend } from "../src/backend.js";
import { openEngineIn } from "../src/open-engine.js";
import { referenceBackend } from "../src/reference/index.js";
import { openEngine } from "../src/web.js";
import { worldOf } from "./support.js";

/** Answers later, as WebGPU does. */
const slow: Backend = {
  ...referenceBackend,
  name: "slow",
  probe: async () => referenceBackend.probe(),
  open: async (options) => referenceBackend.open(options),
};

const source = new URL("../src/", import.meta.url);

function imports(file: URL, seen = new Map<string, string[]>()): Map<string, string[]> {
  if (seen.has(file.href)) return seen;
  const text = readFileSync(file, "utf8");
  const found = [...text.matchAll(/^(?:import|export)(?! type [^;]*;$).*? from "([^"]+)";$/gms)].map(
    (match) => match[1]!,
  );
  seen.set(file.href, found);
  for (const one of found) if (one.startsWith(".")) imports(new URL(one.replace(/\.js$/, ".ts"), file), seen);
  return seen;
}

describe("the entry for pages", () => {
  it("imports nothing of Node", () => {
    const all = imports(new URL("web.ts", source));
    expect(all.size).toBeGreaterThan(20);
    expect(
      [...all].flatMap(([file, found]) => found.filter((one) => !one.startsWith(".")).map((one) => `${file}: ${one}`)),
    ).toEqual([]);
    // The test can see them where they are.
    expect([...imports(new URL("index.ts", source)).values()].flat()).toContain("node:fs");
  });

  it("opens the back end that it is given", async () => {
    using engine = await openEngine({ backend: slow });
    expect(engine.selection).toMatchObject({ requested: "slow", chosen: "slow", requestedBy: "option" });
    const one = { data: Float32Array.of(1, 2), shape: [1, 1, 1, 2] };
    const { out } = await engine.attention({ q: one, k: one, v: one });
    expect([...(out.data as Float32Array)]).toEqual([1, 2]);
    await expect(openEngine({ backend: slow, device: 3 })).rejects.toMatchObject({ code: "device-unavailable" });
    await expect(openEngine({} as never)).rejects.toMatchObject({ code: "device-unavailable" });
  });
});

describe("back ends in JavaScript, in Node", () => {
  it("may answer later, and be given rather than named", async () => {
    using named = await openEngineIn(worldOf({ slow, reference: referenceBackend }), { backend: "slow" as never });
    expect(named.backend).toBe("slow");
    using given = await openEngineIn(worldOf({ reference: referenceBackend }), { backend: slow });
    expect(given.selection).toMatchObject({ requested: "slow", reason: "asked for" });
  });

  it("a GPU that the CPU plays is used by name only", async () => {
    const [device] = referenceBackend.probe().devices;
    const played = { ...device!, name: "Played", caps: { ...device!.caps, emulated: true } };
    const webgpu = { ...slow, name: "webgpu", probe: async () => ({ ...referenceBackend.probe(), devices: [played] }) };
    const world = worldOf({ webgpu, reference: referenceBackend });
    using automatic = await openEngineIn(world);
    expect(automatic.selection).toMatchObject({ chosen: "reference" });
    expect(automatic.selection.tried[0]?.reason).toMatch(/Played is played by the CPU/);
    using named = await openEngineIn(world, { backend: "webgpu" });
    expect(named.backend).toBe("webgpu");
  });
});
