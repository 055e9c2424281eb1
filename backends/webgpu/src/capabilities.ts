import { type Tile, workgroupBytes } from "./wgsl/attention.js";
import { type MatrixShape, matrixBytes, matrixKeys } from "./wgsl/matrix.js";

/** What kernels have to know of a device. */
export interface Capabilities {
  readonly workgroupBytes: number;
  readonly workgroupThreads: number;
  /** Workgroups in one dimension of a grid. */
  readonly gridWidth: number;
  /** Bytes that a binding may have. */
  readonly bindingBytes: number;
  readonly bindingAlignment: number;
  /** Why subgroups can't be used; empty if they can. */
  readonly noSubgroups: string;
  /** Subgroup matrices of f16 that are summed in f32; why there are none. */
  readonly matrix: MatrixShape | undefined;
  readonly noMatrix: string;
  /** Subgroups of a workgroup of them. */
  readonly matrixSubgroups: number;
  /** The CPU plays it. */
  readonly emulated: boolean;
  /** Workgroups that keep the device busy. */
  readonly wantedWorkgroups: number;
  /** The same where keys stream past, its threads, and keys that a thread has on their way. */
  readonly streamWorkgroups: number;
  readonly streamThreads: number;
  readonly streamKeys: number;
  /** Of prefill on tiles; none: the least. */
  readonly prefillTile: Tile | undefined;
  /** Multiplications that one submission may hold: browsers and drivers stop what takes seconds. */
  readonly submissionWork: number;
}

/** On an H200 1.6 times as fast as the least (docs/kernels/webgpu.md). */
const largerTile: Tile = { ty: 16, tx: 8, depth: 8 };

// Shader arithmetic on elements of a binding is 32 bits wide.
const largestBinding = 2 ** 31 - 256;

export function capabilitiesOf(
  device: GPUDevice,
  info: GPUAdapterInfo,
  emulated: boolean,
  limits: Limits,
): Capabilities {
  const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupsPerDimension } =
    device.limits;
  const { maxStorageBufferBindingSize, minStorageBufferOffsetAlignment } = device.limits;
  // The CPU's adapters compile small tiles faster, and so test what every device has room for.
  const fits = (bytes: number) => !emulated && bytes <= maxComputeWorkgroupStorageSize;
  const found = matrixOf(device, info, emulated);
  const eightFit =
    found.matrix !== undefined &&
    8 * found.matrix.size <= maxComputeInvocationsPerWorkgroup &&
    fits(matrixBytes(found.matrix, 8, 128, 128));
  return {
    workgroupBytes: maxComputeWorkgroupStorageSize,
    workgroupThreads: maxComputeInvocationsPerWorkgroup,
    gridWidth: Math.min(maxComputeWorkgroupsPerDimension, limits.gridWidth ?? Number.POSITIVE_INFINITY),
    bindingBytes: Math.min(
      maxStorageBufferBindingSize,
      largestBinding,
      limits.bindingBytes ?? Number.POSITIVE_INFINITY,
    ),
    bindingAlignment: minStorageBufferOffsetAlignment,
    noSubgroups: whyNoSubgroups(device, info),
    ...found,
    matrixSubgroups: limits.matrixSubgroups ?? (eightFit ? 8 : 4),
    emulated,
    wantedWorkgroups: emulated ? 8 : 512,
    streamWorkgroups: limits.streamWorkgroups ?? (emulated ? 8 : 1024),
    streamThreads: limits.streamThreads ?? 128,
    streamKeys: limits.streamKeys ?? (fits(24_576) ? 8 : 4),
    prefillTile: limits.prefillTile ?? (fits(workgroupBytes(largerTile)) ? largerTile : undefined),
    submissionWork: limits.submissionWork ?? (emulated ? 2e9 : 2e11),
  };
}

/** Limits narrower than the device's, so that small problems take the paths of large ones. For tests. */
export interface Limits {
  readonly bindingBytes?: number | undefined;
  readonly gridWidth?: number | undefined;
  readonly submissionWork?: number | undefined;
  readonly streamWorkgroups?: number | undefined;
  readonly streamThreads?: number | undefined;
  readonly streamKeys?: number | undefined;
  readonly matrixSubgroups?: number | undefined;
  readonly prefillTile?: Tile | undefined;
}

function whyNoSubgroups(device: GPUDevice, info: GPUAdapterInfo): string {
  if (!device.features.has("subgroups")) return "the device has no subgroups";
  const { subgroupMinSize: least = 4, subgroupMaxSize: most = 128 } = info;
  if (least >= 4 && most <= 128) return "";
  return `its subgroups have ${least} to ${most} threads, 4 to 128 are known`;
}

/** The experimental features that subgroup matrices of f16 need. */
export const matrixFeatures = ["chromium-experimental-subgroup-matrix", "shader-f16"];

interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

/** The largest of the shapes that the adapter lists and the kernel can divide its tiles into. */
function matrixOf(
  device: GPUDevice,
  info: GPUAdapterInfo,
  emulated: boolean,
): Pick<Capabilities, "matrix" | "noMatrix"> {
  const no = (noMatrix: string) => ({ matrix: undefined, noMatrix });
  for (const feature of matrixFeatures)
    if (!device.features.has(feature as GPUFeatureName)) return no(`the device has no ${feature}`);
  const { subgroupMinSize: size = 4, subgroupMaxSize: most = 128 } = info;
  if (size !== most) return no(`its subgroups have ${size} to ${most} threads; allowed for it: one size`);
  // Mesa 26.2's lavapipe ends the process where 16 threads make a matrix of zeros.
  if (emulated && size > 8) return no(`the CPU plays it with subgroups of ${size}; allowed for it: up to 8`);
  const listed = [...((info as { subgroupMatrixConfigs?: Iterable<MatrixConfig> }).subgroupMatrixConfigs ?? [])];
  const sums = listed.filter((one) => one.componentType === "f16" && one.resultComponentType === "f32");
  if (sums.length === 0) return no("the device lists no matrices of f16 that are summed in f32");
  const power = (n: number) => n >= 8 && Number.isInteger(Math.log2(n));
  const fit = sums.filter(
    // Threads of a row have four scores each, or more.
    ({ M, N, K }) => [M, N, K].every((n) => power(n) && n <= matrixKeys) && M <= size && (size / M) * 4 <= matrixKeys,
  );
  const [best] = fit.sort((a, b) => b.M * b.N * b.K - a.M * a.N * a.K);
  if (!best) {
    const shapes = sums.map(({ M, N, K }) => `${M}x${N}x${K}`).join(", ");
    return no(
      `its matrices of f16 are ${shapes}; allowed for it, with subgroups of ${size}: powers of two, ${Math.max(8, size / (matrixKeys / 4))} to ${Math.min(size, matrixKeys)} rows`,
    );
  }
  return { matrix: { m: best.M, n: best.N, k: best.K, size }, noMatrix: "" };
}
