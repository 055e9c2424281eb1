import { type Engine, TesseraError } from "@tessera/core";
import { describe, expect, it } from "vitest";
import { sample } from "../src/measure.js";
import { normals, period } from "../src/random.js";
import { median, quantile, spread } from "../src/statistics.js";

describe("statistics", () => {
  it("of samples", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
    expect(quantile([1, 2, 3, 4, 5], 0.25)).toBe(2);
    expect(spread([1, 2, 3, 4, 5])).toBeCloseTo(2 / 3);
    expect(spread([7])).toBe(0);
  });
  it("random numbers are standard normal, and the same every time", () => {
    const values = normals(period);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length;
    expect(Math.abs(mean)).toBeLessThan(0.005);
    expect(Math.abs(variance - 1)).toBeLessThan(0.01);
    expect(Math.max(...values.subarray(0, 100_000))).toBeGreaterThan(3.5);
    expect(normals(10)).toEqual(values.slice(0, 10));
  });
});

/** A device with a queue and a clock: each call takes `ms`, a launch replays calls. */
function device(ms: number, graphs: boolean) {
  let now = 0;
  const log = { calls: [] as number[], launches: 0, captures: 0, waited: 0 };
  let recording: number[] | undefined;
  const call = (which: number) => {
    if (recording) recording.push(which);
    else {
      now += ms;
      log.calls.push(which);
    }
  };
  const engine = {
    device: { caps: { async: true, graphs, hostMemory: false } },
    mark: () => {
      const at = now;
      return { at, since: async (start: { at: number }) => at - start.at, dispose: () => {} };
    },
    synchronize: async () => {
      log.waited++;
    },
    capture: async (calls: () => Promise<void>) => {
      log.captures++;
      recording = [];
      await calls();
      const recorded = recording;
      recording = undefined;
      return {
        launch: async () => {
          log.launches++;
          for (const which of recorded) call(which);
        },
        dispose: () => {},
      };
    },
  } as unknown as Engine;
  return { engine, log, call };
}

const plan = { repeats: 20, sampleMs: 1, warmUpMs: 0 };

describe("a device with queues", () => {
  it("that can't be marked is timed by the host, until its queue is empty", async () => {
    const { engine, log } = device(0.03, false);
    const unmarked = Object.assign(engine, {
      mark: () => {
        throw new TesseraError("unsupported", "no queue to mark");
      },
    });
    const pause = () => new Promise<void>((resolve) => setTimeout(resolve, 2));
    Object.assign(unmarked, { synchronize: () => (log.waited++, pause()) });
    const sampled = await sample(unmarked, [async () => {}], { ...plan, repeats: 3, sampleMs: 0.001 });
    expect(sampled.clock).toBe("host");
    expect(log.waited).toBeGreaterThanOrEqual(6); // three to learn how long a call takes, and each sample
    expect(Math.min(...sampled.samples)).toBeGreaterThan(1 / sampled.callsPerSample);
  });
  it.each([true, false])(
    "is timed by its own clock, in batches of whole rounds over all inputs (graphs: %s)",
    async (graphs) => {
      const { engine, log, call } = device(0.03, graphs);
      const calls = [0, 1, 2, 3].map((which) => async () => call(which));
      const sampled = await sample(engine, calls, plan);
      expect(sampled.clock).toBe("device");
      expect(sampled.callsPerSample).toBe(36); // 9 rounds of 0.12 ms
      expect(sampled.samples).toHaveLength(20);
      for (const ms of sampled.samples) expect(ms).toBeCloseTo(0.03);
      expect(log.captures).toBe(graphs ? 1 : 0);
      // Calls go round: none comes again before the others were there.
      expect(log.calls.slice(-8)).toEqual([0, 1, 2, 3, 0, 1, 2, 3]);
    },
  );
  it("a long call is made as it is", async () => {
    const { engine, log, call } = device(40, true);
    const { callsPerSample, samples } = await sample(engine, [async () => call(0)], plan);
    expect([callsPerSample, samples.length, log.captures]).toEqual([1, 20, 0]);
    expect(samples[0]).toBe(40);
  });
  it("ends when it is told to", async () => {
    const { engine, call } = device(40, true);
    const controller = new AbortController();
    const onSample = (done: number) => {
      if (done >= 10) controller.abort(new Error("enough"));
    };
    const sampling = sample(engine, [async () => call(0)], { ...plan, signal: controller.signal, onSample });
    await expect(sampling).rejects.toThrow("enough");
  });
});

describe("a device without", () => {
  const engine = { device: { caps: { async: false } } } as unknown as Engine;
  const busy = (ms: number) => async () => {
    for (const start = performance.now(); performance.now() - start < ms; );
  };
  it("is timed by the host's clock", async () => {
    const { clock, callsPerSample, samples } = await sample(engine, [busy(0.1), busy(0.1)], plan);
    expect(clock).toBe("host");
    expect(callsPerSample).toBeGreaterThan(1);
    expect(callsPerSample).toBeLessThan(12);
    expect(samples).toHaveLength(20);
    expect(median(samples)).toBeGreaterThan(0.099);
    expect(median(samples)).toBeLessThan(2);
  });
});
