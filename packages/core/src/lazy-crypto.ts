/** What needs node:crypto, which is loaded at the first call: it would be a quarter of what importing core costs. */
import { createRequire } from "node:module";
import { here } from "./package-root.js";

const load = (): typeof import("node:crypto") => createRequire(here)("node:crypto");

/** SHA-256, in hex digits. */
export const sha256 = (data: string | Uint8Array): string => load().createHash("sha256").update(data).digest("hex");

export const randomName = (): string => load().randomUUID();
