/** Which libraries have to be there: without some `npm test` does, after the lanes that build them nothing excuses it. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { root } from "./root.js";

interface Part {
  readonly folder: string;
  readonly built: string;
  readonly platforms: readonly string[];
}

const script = (name: string) => import(join(root, "scripts/lib", name));
const { hostPlatform, parts: all }: { hostPlatform(): string; parts: Record<string, Part> } =
  await script("platforms.mjs");
const { findHipCompiler, findNvcc }: Record<"findHipCompiler" | "findNvcc", () => string | null> =
  await script("native.mjs");
const { headers }: { headers: string } = await script("ggml.mjs");

/** Native files of this platform, below the repository's root, by part. */
export const libraries: ReadonlyMap<string, string> = new Map(
  Object.entries(all)
    .filter(([, { platforms }]) => platforms.includes(hostPlatform()))
    .map(([part, { folder, built }]) => [part, join(folder, built)]),
);

/** What tells that a lane before has built the part; core and cpu are of every setup. */
const builders: { readonly [part: string]: () => boolean } = {
  cuda: () => findNvcc() !== null,
  hip: () => findHipCompiler() !== null,
  ggml: () => existsSync(headers),
};

/** Whether a test may be skipped because there is no library of this part. */
export const mayLack = (part: string): boolean => {
  const builder = builders[part];
  return builder !== undefined && !(process.env.EXPECT_BUILT === "1" && builder());
};
