// 64 attention calls at once from 8 workers, over the back ends given, more than half of them aborted: before the call, right behind
// it, in the event loop's next turn, or some time in the next 4 ms. What is computed has the bits of a sequential run. Prints its counts
// as JSON; exit code 1: a wrong one, a failed one, or fewer than a tenth of a back end's calls computed, or aborted after they were made
// (where a call lasts microseconds most are over before a timer's first moment). A device's number may follow a back end: cuda:1.
//   node src/storm.mjs ROUNDS SEED cpu|cuda:1|/path/to/a/library.so:1 ...
import { once } from "node:events";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { openEngine } from "@tessera/core";
import { checksum, problem } from "./problems.mjs";

const calls = 64;
const workers = 8;
const moments = ["never", "never", "never", "before", "behind", "behind", "next turn", "later"];
function open(given) {
  const [, name, device] = /^(.*?)(?::(\d+))?$/.exec(given);
  return openEngine({ [name.includes("/") ? "library" : "backend"]: name, device: device && Number(device) });
}

if (isMainThread) {
  const [rounds, seed, ...backends] = process.argv.slice(2);
  const expected = {};
  for (const name of backends) {
    const engine = await open(name);
    expected[name] = [];
    for (let n = 0; n < calls; n++) expected[name].push(checksum((await engine.attention(problem(n))).out.data));
    engine.dispose();
  }
  const counts = { computed: 0, aborted: 0, wrong: 0, failed: [], late: 0 };
  const by = Object.fromEntries(backends.map((name) => [name, { all: 0, computed: 0, late: 0 }]));
  const threads = Array.from(
    { length: workers },
    (_, index) =>
      new Worker(new URL(import.meta.url), { workerData: { index, rounds: +rounds, seed: +seed, backends } }),
  );
  const done = threads.map(async (thread) => {
    const gone = new Promise((resolve) => thread.once("exit", resolve)); // before it can have happened
    const [results] = await once(thread, "message");
    for (const { name, n, moment, sum, aborted, error } of results) {
      by[name].all++;
      by[name].computed += sum !== undefined;
      if (aborted && moment !== "before") by[name].late++;
      if (error) counts.failed.push(`${name} ${n}: ${error}`);
      else if (aborted) counts.aborted++;
      else if (sum === expected[name][n]) counts.computed++;
      else counts.wrong++;
    }
    await gone;
  });
  await Promise.all(done);
  for (const [name, { all, computed, late }] of Object.entries(by)) {
    counts.late += late;
    const fewest = Math.ceil(all / 10);
    if (late < fewest) counts.failed.push(`${name}: ${late} of ${all} aborted after they were made, not ${fewest}`);
    if (computed < fewest) counts.failed.push(`${name}: ${computed} of ${all} computed, not ${fewest}`);
  }
  console.log(JSON.stringify(counts));
  process.exitCode = counts.wrong > 0 || counts.failed.length > 0 ? 1 : 0;
} else {
  const { index, rounds, seed, backends } = workerData;
  let state = seed + index * 7919;
  const random = () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state / 0x7fffffff;
  };
  const engines = new Map();
  for (const name of backends) engines.set(name, await open(name));
  const results = [];
  for (let round = 0; round < rounds; round++) {
    const batch = Array.from({ length: calls / workers }, async (_, i) => {
      const n = index * (calls / workers) + i;
      const name = backends[(n + round) % backends.length];
      const controller = new AbortController();
      const reason = new Error("enough");
      const abort = () => controller.abort(reason);
      const moment = moments[Math.floor(random() * moments.length)];
      if (moment === "before") abort();
      try {
        const work = engines.get(name).attention({ ...problem(n), signal: controller.signal });
        if (moment === "behind") abort();
        else if (moment === "next turn") setImmediate(abort);
        else if (moment === "later") setTimeout(abort, random() * 4);
        const { out } = await work;
        results.push({ name, n, moment, sum: checksum(out.data) });
      } catch (error) {
        results.push({ name, n, moment, ...(error === reason ? { aborted: true } : { error: String(error) }) });
      }
    });
    await Promise.all(batch);
  }
  for (const engine of engines.values()) engine.dispose();
  parentPort.postMessage(results);
}
