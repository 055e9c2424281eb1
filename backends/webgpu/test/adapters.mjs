// Adapters, most played by the CPU, and how a process comes to see one: the loader takes the driver that VK_ICD_FILENAMES names.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

// Debian's chromium brings SwiftShader and a Vulkan loader.
const chromium = "/usr/lib/chromium";
const icds = "/usr/share/vulkan/icd.d";

const swiftshader = join(chromium, "vk_swiftshader_icd.json");

function lavapipe() {
  if (process.env.TESSERA_LAVAPIPE_ICD) return process.env.TESSERA_LAVAPIPE_ICD;
  const name = existsSync(icds) ? readdirSync(icds).find((one) => one.startsWith("lvp_icd")) : undefined;
  return name && join(icds, name);
}

const libraries = () => [process.env.LD_LIBRARY_PATH, chromium].filter(Boolean).join(":");

/** @type {() => { name: string, env?: Record<string, string>, missing?: string, named?: boolean }[]} */
export function adapters() {
  const icd = lavapipe();
  const list = [
    existsSync(swiftshader)
      ? { name: "swiftshader", env: { VK_ICD_FILENAMES: swiftshader } }
      : { name: "swiftshader", missing: `no ${swiftshader} (Debian's chromium brings it)` },
  ];
  // The widths of its vectors are the sizes of its subgroups.
  for (const [lanes, bits] of [
    [4, 128],
    [8, 256],
    [16, 512],
  ]) {
    const name = `lavapipe-${lanes}`;
    if (icd) list.push({ name, env: { VK_ICD_FILENAMES: icd, LP_NATIVE_VECTOR_WIDTH: String(bits) } });
    else
      list.push({
        name,
        missing: "no lavapipe (Mesa 23 or newer: mesa-vulkan-drivers; TESSERA_LAVAPIPE_ICD names its .json)",
      });
  }
  for (const one of list) if (one.env) one.env.LD_LIBRARY_PATH = libraries();
  // The driver of a real GPU, where the system has one: asked for by name alone.
  list.push({ name: "gpu", env: {}, named: true });
  return list;
}
