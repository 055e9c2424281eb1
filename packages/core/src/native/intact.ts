/**
 * Is a native file what was published? Against damage (a full disk, a broken mirror, a half-done copy), not against an
 * attacker: who can change the file can change integrity.json beside it. What a clone builds has none, and isn't asked.
 */
import { closeSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { sha256 } from "../lazy-crypto.js";

interface Published {
  readonly bytes: number;
  readonly sha256: string;
}

/** What a look at its size and its head shows: "is truncated: ...", or that it is for another machine. */
export function visibleDamage(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (!stat?.isFile()) return undefined; // the loader has words for that
  const { size } = stat;
  const published = publishedOf(path);
  if (published !== undefined && published.bytes !== size)
    return `is damaged: it has ${size} bytes, ${published.bytes} were published`;
  return elfDamage(path, size);
}

const answers = new Map<string, Promise<string | undefined>>();

/** Also reads all of it, once a process for a file that stays as it is. */
export function damage(path: string): Promise<string | undefined> {
  const visible = visibleDamage(path);
  const published = publishedOf(path);
  if (visible !== undefined || published === undefined) return Promise.resolve(visible);
  const key = `${path} ${statSync(path).mtimeMs} ${published.sha256}`;
  let answer = answers.get(key);
  if (answer === undefined) {
    answer = readFile(path).then((bytes) => differs(published, bytes));
    answers.set(key, answer);
  }
  return answer;
}

/** `damage` for a small file that is loaded at once. */
export function damageNow(path: string): string | undefined {
  const visible = visibleDamage(path);
  if (visible !== undefined) return visible;
  const published = publishedOf(path);
  return published && differs(published, readFileSync(path));
}

function differs(published: Published, bytes: Uint8Array): string | undefined {
  const found = sha256(bytes);
  if (found === published.sha256) return undefined;
  return `is damaged or was changed: its SHA-256 is ${found}, ${published.sha256} was published`;
}

function publishedOf(path: string): Published | undefined {
  try {
    const files = JSON.parse(readFileSync(join(dirname(path), "integrity.json"), "utf8")) as Record<string, Published>;
    return files[basename(path)];
  } catch {
    return undefined;
  }
}

const elfHeaderBytes = 64;
/** e_machine of what Node calls process.arch. */
const machines: { readonly [arch: string]: number } = { x64: 62, arm64: 183 };

// The section headers are at the end of an ELF file: one that ends before them is cut. dlopen maps such a file, and dies.
function elfDamage(path: string, size: number): string | undefined {
  if (process.platform !== "linux" || size === 0) return size === 0 ? "is empty" : undefined;
  const head = Buffer.alloc(elfHeaderBytes);
  const file = openSync(path, "r");
  try {
    if (readSync(file, head) < elfHeaderBytes) return undefined; // the dynamic linker says "file too short"
  } finally {
    closeSync(file);
  }
  const elf64 = head.readUInt32BE(0) === 0x7f454c46 && head[4] === 2 && head[5] === 1;
  if (!elf64) return undefined;
  const machine = head.readUInt16LE(18);
  const wanted = machines[process.arch];
  if (wanted !== undefined && machine !== wanted) {
    const name = Object.keys(machines).find((arch) => machines[arch] === machine) ?? `ELF machine ${machine}`;
    return `is built for ${name}, this process is ${process.arch}`;
  }
  const end = Number(head.readBigUInt64LE(40)) + head.readUInt16LE(58) * head.readUInt16LE(60);
  return end > size ? `is truncated: it has ${size} bytes, by its header it should have ${end}` : undefined;
}
