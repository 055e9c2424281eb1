import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { f32, random, safetensors, scratch, tessera } from "./helpers.js";
import { cpu, shimIn } from "./shim.js";

const folder = scratch();
const shim = shimIn(folder);

const few = ["--filter", "causal", "--quick", "--layout", "contiguous"];

describe("tessera conform", () => {
  it("a right back end: exit 0", async () => {
    expect(existsSync(cpu), `${cpu} is built`).toBe(true);
    const { code, out, err } = await tessera("conform", cpu, ...few);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(/^kernel +passed +failed +declined$/m);
    expect(out).toMatch(/libtessera-cpu\.so \(cpu [\d.]+\): conformant\n$/);

    const json = await tessera("conform", cpu, ...few, "--json");
    const report = JSON.parse(json.out);
    expect(report).toMatchObject({ name: "cpu", conformant: true, failed: 0, failures: [] });
    expect(report.passed).toBeGreaterThan(0);
    expect(json.err).toBe("");

    const kernel = report.kernels[0].name;
    const one = JSON.parse((await tessera("conform", cpu, ...few, "--kernel", kernel, "--json")).out);
    expect(one.kernels.map((k: { name: string }) => k.name)).toEqual([kernel]);
  });

  it("a wrong result: exit 1, failures first", async (ctx) => {
    const library = shim(ctx, "WRONG");
    const { code, out } = await tessera("conform", library, ...few);
    expect(code).toBe(1);
    expect(out).toMatch(/^FAIL \S+\/contiguous\/\S+ \[result\]\n {5}.*\d/);
    expect(out).toMatch(/NOT conformant\n$/);
    const report = JSON.parse((await tessera("conform", library, ...few, "--json")).out);
    expect(report.conformant).toBe(false);
    expect(report.failures.length).toBeGreaterThan(0);
  });

  it("a crash: exit 1, and the case that it happened in", async (ctx) => {
    const { code, out } = await tessera("conform", shim(ctx, "CRASHES"), ...few);
    expect(code).toBe(1);
    expect(out).toMatch(/^FAIL case \S*causal\S* \[crash\]\n {5}took its process down \(SIGABRT\)/);
  });

  it("output: exit 1", async (ctx) => {
    const { code, out } = await tessera("conform", shim(ctx, "PRINTS"), ...few);
    expect(code).toBe(1);
    expect(out).toMatch(/^FAIL process \[output\]\n {5}.*hello from attention/);
  });

  it("not a back end, another ABI: exit 2; a death at load: exit 1; no device: exit 3", async (ctx) => {
    const none = await tessera("conform", shim(ctx, "NO_ENTRY"));
    expect(none).toMatchObject({ code: 2, out: "", err: expect.stringMatching(/tsr_backend_entry/) });
    const abi = await tessera("conform", shim(ctx, "OTHER_ABI"));
    expect(abi).toMatchObject({ code: 2, out: "", err: expect.stringMatching(/ABI|version|contract/i) });
    const dead = await tessera("conform", shim(ctx, "DIES_AT_LOAD"));
    expect(dead).toMatchObject({ code: 1, out: expect.stringMatching(/\[crash\][\s\S]*SIGABRT/) });
    const device = await tessera("conform", shim(ctx, "NO_DEVICE"), "--json");
    expect(device).toMatchObject({
      code: 3,
      err: expect.stringMatching(/driver of the shim[\s\S]*install the shim's/),
    });
    expect(JSON.parse(device.out).error.code).toBe("device-unavailable");

    const text = join(folder, "text.so");
    writeFileSync(text, "not an ELF file");
    expect(await tessera("conform", text)).toMatchObject({ code: 2, out: "", err: expect.stringMatching(/text\.so/) });
  });

  it("attend --check catches a wrong back end, too: exit 1", async (ctx) => {
    const next = random(5);
    const file = join(folder, "qkv.safetensors");
    writeFileSync(file, safetensors({ q: f32([4, 1, 8], next), k: f32([4, 1, 8], next), v: f32([4, 1, 8], next) }));
    const args = ["attend", file, "--causal", "--check", "--json"];
    const wrong = await tessera(...args, "--library", shim(ctx, "WRONG"));
    expect(wrong.code).toBe(1);
    const { ok, errors } = JSON.parse(wrong.out);
    expect(ok).toBe(false);
    expect(errors.out.maxError).toBeGreaterThan(0.009);
    expect(errors.lse.maxError).toBeLessThan(errors.lse.bound);
    expect((await tessera(...args, "--library", cpu)).code).toBe(0);
  });

  it("names the cases, kernels and devices there are", async () => {
    expect(existsSync(cpu), `${cpu} is built`).toBe(true);
    const filter = await tessera("conform", cpu, "--filter", "no-such-case");
    expect(filter).toMatchObject({
      code: 2,
      err: expect.stringMatching(/no-such-case matches no case; there are \S+/),
    });
    const kernel = await tessera("conform", cpu, "--kernel", "no-such-kernel");
    expect(kernel).toMatchObject({ code: 2, err: expect.stringMatching(/no-such-kernel; allowed: \S+/) });
    expect((await tessera("conform", cpu, "--device", "9")).code).toBe(3);
  });
});
