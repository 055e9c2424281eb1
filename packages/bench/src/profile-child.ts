// One case, twice, for a profiler to look at. The first warms up.
import { type AttentionOptions, type EngineOptions, openEngine } from "@tessera/core";
import { Arenas } from "./arena.js";
import type { AttentionCase } from "./case.js";
import type { ProfileRequest } from "./profile.js";
import { inputsOf } from "./run-case.js";
import { casesOf, type SuiteName } from "./suites.js";

const request = JSON.parse(process.argv[2] ?? "{}") as ProfileRequest;
const { library, device, backend, kernel } = request;
using engine = await openEngine((library ? { library, device } : { backend, device }) as EngineOptions);
const one = casesOf(request.suite as SuiteName, engine).find(({ name }) => name === request.case) as AttentionCase;
const inputs = await inputsOf({ engine, arenas: new Arenas(engine) }, one);
for (let call = 0; call < 2; call++) {
  await engine.attention({ ...inputs.options, kernel } as AttentionOptions);
  await engine.synchronize();
}
