import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import { parseCsv, parseNcu, withProfiles } from "../src/profile.js";
import { renderReport } from "../src/report/render.js";
import { validateResult } from "../src/validate.js";
import { imagined } from "./support.js";

const folder = mkdtempSync(join(tmpdir(), "tessera-ncu-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => vi.unstubAllEnvs());

/** As ncu prints it: talk, a header, units, launches. */
const said = `==PROF== Connected to process 17
==PROF== Disconnected
"ID","Process ID","Kernel Name","Context","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum","l1tex__data_pipe_lsu_wavefronts_mem_shared.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active","sm__warps_active.avg.pct_of_peak_sustained_active","smsp__average_warp_latency_per_inst_issued.ratio","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio","smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio","smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio"
"","","","","%","nsecond","","","%","%","inst","inst","inst","inst"
"0","17","void prefill<128, ""x"">(Args)","1","1","1,000,000","0","100","10","10","8","1","1","1"
"1","17","void prefill<128, ""x"">(Args)","1","7.5","2,500,000","50","1,000","61.5","18.75","8","2","0.5","1.5"
`;

function playing(script: string): void {
  const path = join(folder, "ncu");
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  vi.stubEnv("TESSERA_NCU", path);
}

it("reads what ncu prints", () => {
  expect(parseCsv('a,"b ""c"", d"\r\n1,\n')).toEqual([
    ["a", 'b "c", d'],
    ["1", ""],
  ]);
  const launches = parseNcu(said);
  expect(launches.map(({ function: name }) => name)).toEqual(Array(2).fill('void prefill<128, "x">(Args)'));
  expect(launches[1]!.values).toMatchObject({ barrier: 2, wavefronts: 1000, tensor: 61.5, time: 2_500_000 });
  expect(parseNcu("==ERROR== nothing")).toEqual([]);
});

it("profiles each kernel once, and the report shows it", async () => {
  writeFileSync(join(folder, "said"), said);
  playing(`echo "$@" >> ${folder}/asked; cat ${folder}/said`);
  const result = validateResult(await withProfiles(imagined("GPU")), "it");
  expect(result.profiles!.map(({ kernel }) => kernel).sort()).toEqual(
    ["decode-x", "ladder-256x128", "ladder-64x64", "ladder-split", "prefill-mma", "prefill-x"].sort(),
  );
  expect(result.profiles![0]).toMatchObject({
    microseconds: 2500,
    shares: {
      "waiting at barriers": 0.25,
      "waiting for shared memory": 0.25,
      "bank conflicts of shared accesses": 0.05,
      occupancy: 0.1875,
      "memory bandwidth": 0.075,
      "tensor cores": 0.615,
    },
  });
  const page = renderReport([{ name: "a.json", result }]);
  expect(page).toContain("Kernels under Nsight Compute");
  expect(page).toContain("void prefill&lt;128, &quot;x&quot;&gt;(Args)");
});

it("runs the kernel that was measured, of the library that was, and says what an interrupt left out", async () => {
  const asked = join(folder, "asked");
  playing(`echo "$@" >> ${asked}; cat ${folder}/said`);
  rmSync(asked, { force: true });
  await withProfiles(imagined("GPU"), { library: "/some/libtessera-cuda.so" });
  const requests = readFileSync(asked, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line.slice(line.indexOf("{"))));
  expect(requests.map(({ kernel }) => kernel)).toContain("ladder-256x128");
  for (const { library } of requests) expect(library).toBe("/some/libtessera-cuda.so");

  rmSync(asked);
  const { skipped, profiles } = await withProfiles(imagined("GPU"), { signal: AbortSignal.abort() });
  expect(profiles).toBeUndefined();
  expect(skipped.filter(({ reason }) => reason === "interrupted")).toHaveLength(requests.length);
  expect(existsSync(asked)).toBe(false);
});

it("says why there is none", async () => {
  const reasons = async (backend?: string) => {
    const { skipped, profiles } = await withProfiles(imagined("GPU", backend));
    expect(profiles).toBeUndefined();
    return skipped.filter(({ suite }) => suite === "profile").map(({ reason }) => reason);
  };
  playing("echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1");
  expect((await reasons())[0]).toMatch(/ERR_NVGPUCTRPERM/);
  playing("echo nothing to see");
  expect((await reasons())[0]).toBe("ncu told nothing: nothing to see");
  vi.stubEnv("TESSERA_NCU", join(folder, "absent"));
  vi.stubEnv("PATH", folder.replace("ncu", "none"));
  expect(await reasons("hip")).toEqual(["Nsight Compute knows NVIDIA GPUs only"]);
});
