/** Runs the probe script in a process of its own, and says how that ended. */
import type { ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import { type ChildAnswer, probeScript } from "./probe-script.js";

export type ProbeEnd =
  | { readonly kind: "answered"; readonly answer: ChildAnswer }
  | { readonly kind: "crashed"; readonly how: string; readonly said: string }
  | { readonly kind: "timed-out" }
  | { readonly kind: "not-started"; readonly how: string };

const saidAtMost = 500;

const running = new Set<ChildProcess>();

// A child that hangs must not outlive us.
function killAll(): void {
  for (const child of running) child.kill("SIGKILL");
}

export async function runProbeChild(addon: string, library: string, timeoutMs: number): Promise<ProbeEnd> {
  const { spawn } = await import("node:child_process"); // not where core is imported: loading it takes time
  const { NODE_OPTIONS: _, ...env } = process.env; // a debugger's port, a loader: not for the child
  const child = spawn(process.execPath, ["-e", probeScript, addon, library], {
    env: process.versions.electron === undefined ? env : { ...env, ELECTRON_RUN_AS_NODE: "1" },
    stdio: ["ignore", "ignore", "pipe", "pipe"],
    windowsHide: true,
  });
  if (running.size === 0) process.on("exit", killAll);
  running.add(child);
  try {
    return await ended(child, timeoutMs);
  } finally {
    running.delete(child);
    if (running.size === 0) process.off("exit", killAll);
  }
}

function ended(child: ChildProcess, timeoutMs: number): Promise<ProbeEnd> {
  let answer = "";
  let said = "";
  let timedOut = false;
  collect(child.stdio[3] as Readable, (text) => {
    answer += text;
  });
  collect(child.stderr!, (text) => {
    said = (said + text).slice(-saidAtMost);
  });
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill("SIGKILL");
    }, timeoutMs);
    const end = (how: ProbeEnd) => {
      clearTimeout(timer);
      resolve(how);
    };
    child.on("error", (error) => end({ kind: "not-started", how: error.message }));
    child.on("exit", () => {
      if (timedOut && parsed(answer) === undefined) end({ kind: "timed-out" }); // its own children may hold the pipes
    });
    // "close" rather than "exit": by then all that it wrote has been read.
    child.on("close", (code, signal) => {
      const whole = parsed(answer);
      if (whole !== undefined) end({ kind: "answered", answer: whole });
      else if (timedOut) end({ kind: "timed-out" });
      else end({ kind: "crashed", how: signal ?? `exit code ${code}`, said: said.trim().replaceAll(/\s+/g, " ") });
    });
  });
}

function collect(stream: Readable, take: (text: string) => void): void {
  stream.setEncoding("utf8").on("data", take);
}

function parsed(text: string): ChildAnswer | undefined {
  try {
    return JSON.parse(text) as ChildAnswer;
  } catch {
    return undefined;
  }
}
