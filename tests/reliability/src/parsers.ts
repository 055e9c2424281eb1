/** The parsers of files nobody vouches for, each with good files and the only error that it may throw. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { BadResult, parseResult } from "../../../packages/bench/src/validate.js";
import { headerLength, parseHeader } from "../../../packages/cli/src/safetensors/header.js";
import { TuneStore } from "../../../packages/core/src/tune-store.js";

const corpus = fileURLToPath(new URL("../corpus/", import.meta.url));

export interface Parser {
  readonly name: string;
  readonly good: readonly Buffer[];
  /** Throws what is wrong if the parser does something other than take the file or refuse it in its way. */
  run(bytes: Buffer): void;
}

function files(folder: string): Buffer[] {
  return readdirSync(join(corpus, folder))
    .sort()
    .map((name) => readFileSync(join(corpus, folder, name)));
}

/** Takes it, or throws an error of this kind, whose message names the file and is of a readable length. */
function refuses(parse: () => unknown, kind: (error: Error) => boolean): void {
  try {
    parse();
  } catch (error) {
    const { message } = error as Error;
    if (!kind(error as Error)) throw error;
    if (!message.startsWith("some.file: ")) throw new Error(`doesn't name the file: ${message.slice(0, 200)}`);
    if (message.length > 2000) throw new Error(`a message of ${message.length} characters`);
  }
}

const safetensors: Parser = {
  name: "safetensors",
  good: files("safetensors"),
  run(bytes) {
    const refused = (error: Error) => (error as { code?: unknown }).code === "invalid-file";
    refuses(() => {
      const length = headerLength("some.file", bytes.subarray(0, 8), bytes.length);
      const { tensors } = parseHeader("some.file", bytes.subarray(8, 8 + length), bytes.length - 8 - length);
      let end = 0;
      for (const tensor of [...tensors.values()].sort((a, b) => a.begin - b.begin || a.end - b.end)) {
        if (tensor.begin !== end || tensor.end < end) throw new Error(`${tensor.name} begins at ${tensor.begin}`);
        end = tensor.end;
      }
      if (end !== bytes.length - 8 - length) throw new Error(`tensors end at ${end}`);
    }, refused);
  },
};

const results: Parser = {
  name: "results",
  good: files("results"),
  run(bytes) {
    refuses(
      () => parseResult(bytes.toString("utf8"), "some.file"),
      (error) => error instanceof BadResult,
    );
  },
};

/** A store over a folder with the file in it: it never throws, and knows nothing that isn't right. */
function tuning(): Parser & { dispose(): void } {
  const home = mkdtempSync(join(tmpdir(), "tessera-tuning-"));
  const good = files("tuning");
  return {
    name: "tuning",
    good,
    run(bytes) {
      const before = process.env.TESSERA_CACHE_DIR;
      const emit = process.emitWarning;
      process.env.TESSERA_CACHE_DIR = home;
      process.emitWarning = () => {};
      try {
        const store = new TuneStore("a device");
        mkdirSync(store.folder, { recursive: true });
        writeFileSync(join(store.folder, "one.json"), bytes);
        for (const [shape, { kernel, numSplits }] of store.load()) {
          if (typeof shape !== "string" || typeof kernel !== "string" || !Number.isInteger(numSplits) || numSplits < 0)
            throw new Error(`took ${JSON.stringify({ shape, kernel, numSplits })}`);
        }
      } finally {
        process.env.TESSERA_CACHE_DIR = before;
        process.emitWarning = emit;
      }
    },
    dispose: () => rmSync(home, { recursive: true, force: true }),
  };
}

export const parsers = (): Parser[] => [safetensors, results, tuning()];
