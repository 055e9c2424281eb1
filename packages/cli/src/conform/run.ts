import { fork } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { ConformanceReport, Failure } from "@tessera/conformance";
import { probe, TesseraError, type TesseraErrorCode } from "@tessera/core";
import type { Progress } from "../ui/progress.js";
import type { ConformMessage, ConformRequest } from "./messages.js";

/** Failures that only the parent can see. */
export type Finding = Failure | { readonly id: string; readonly check: "crash" | "output"; readonly message: string };

export interface Outcome {
  readonly name: string;
  readonly version: string;
  readonly conformant: boolean;
  /** Undefined if the library took its process down. */
  readonly report: ConformanceReport | undefined;
  readonly failures: readonly Finding[];
}

/** @throws TesseraError `invalid-file`, `abi-mismatch`, `device-unavailable`, `invalid-argument` */
export async function conform(request: ConformRequest, progress: Progress): Promise<Outcome> {
  progress.show("probing");
  const [report] = await probe({ library: request.library, fresh: true });
  const { state, reason, fix, backend, version = "of unknown version" } = report!;
  const why = `${request.library}: ${reason}${fix === "" ? "" : `\nWhat to do: ${fix}`}`;
  switch (state) {
    case "usable":
      return runInChild(request, progress);
    case "crashed":
    case "timed-out": {
      const failures: Finding[] = [{ id: "probe", check: "crash", message: reason }];
      return { name: backend, version, conformant: false, report: undefined, failures };
    }
    case "load-failed":
    case "not-a-backend":
      throw new TesseraError("invalid-file", why);
    case "abi-mismatch":
      throw new TesseraError("abi-mismatch", why);
    default:
      throw new TesseraError("device-unavailable", why);
  }
}

async function runInChild(request: ConformRequest, progress: Progress): Promise<Outcome> {
  const child = fork(childPath(), [JSON.stringify(request)], {
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    execArgv: [],
    env: { ...process.env, NODE_NO_WARNINGS: "1", NODE_OPTIONS: "" },
  });
  const dropChild = () => void child.kill("SIGKILL");
  process.once("exit", dropChild);
  let printed = "";
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.on("data", (data: Buffer) => {
      if (printed.length < 4096) printed += data.toString();
    });
  }
  let loaded: { name: string; version: string } | undefined;
  let current = "its probe";
  let answer: Exclude<ConformMessage, { kind: "loaded" | "progress" }> | undefined;
  child.on("message", (message: ConformMessage) => {
    if (message.kind === "loaded") loaded = message;
    else if (message.kind === "progress") {
      const { done, total, failed, case: name } = message.progress;
      current = name === "" ? current : `case ${name}`;
      progress.show(`${done} of ${total} cases${failed > 0 ? `, ${failed} failures` : ""}: ${name}`);
    } else answer = message;
  });
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (...ended) => resolve(ended));
  });
  process.removeListener("exit", dropChild);
  progress.clear();

  if (answer?.kind === "error") throw new TesseraError(answer.code as TesseraErrorCode, answer.message);
  if (answer?.kind === "no-device") {
    const fix = answer.fix === "" ? "" : ` Fix: ${answer.fix}`;
    throw new TesseraError("device-unavailable", `${request.library}: no usable device: ${answer.reason}${fix}`);
  }
  const how = signal === null ? `exit code ${code}` : signal;
  const tail = printed.trim().split("\n").slice(-3).join(" | ");
  if (loaded === undefined) {
    throw new TesseraError(
      "invalid-file",
      `${request.library}: took its process down while it was loaded (${how}) ${tail}`,
    );
  }
  const failures: Finding[] = [...(answer?.report.failures ?? [])];
  if (answer === undefined) {
    const message = `took its process down (${how})${tail === "" ? "" : `; last words: ${tail}`}`;
    failures.unshift({ id: current, check: "crash", message });
  } else if (printed !== "") {
    failures.unshift({
      id: "process",
      check: "output",
      message: `a back end prints nothing; this one printed: ${tail}`,
    });
  } else if (code !== 0) {
    failures.unshift({ id: "process", check: "crash", message: `all cases done, then the process ended by ${how}` });
  }
  const { name, version } = loaded;
  return {
    name,
    version,
    conformant: failures.length === 0 && answer?.report.conformant === true,
    report: answer?.report,
    failures,
  };
}

/** Beside this file once bundled; in the tests, which run the sources, the bundle's. */
function childPath(): string {
  const beside = fileURLToPath(new URL("conform-child.js", import.meta.url));
  return existsSync(beside) ? beside : fileURLToPath(new URL("../../dist/conform-child.js", import.meta.url));
}
