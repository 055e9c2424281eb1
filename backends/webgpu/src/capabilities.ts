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
  /** The CPU plays it. */
  readonly emulated: boolean;
  /** Workgroups that keep the device busy. */
  readonly wantedWorkgroups: number;
  /** The same where keys stream past, its threads, and keys that a thread has on their way. */
  readonly streamWorkgroups: number;
  readonly streamThreads: number;
  readonly streamKeys: number;
  /** Multiplications that one submission may hold: browsers and drivers stop what takes seconds. */
  readonly submissionWork: number;
}

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
    emulated,
    wantedWorkgroups: emulated ? 8 : 512,
    streamWorkgroups: limits.streamWorkgroups ?? (emulated ? 8 : 1024),
    streamThreads: limits.streamThreads ?? 128,
    streamKeys: limits.streamKeys ?? 4,
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
}

function whyNoSubgroups(device: GPUDevice, info: GPUAdapterInfo): string {
  if (!device.features.has("subgroups")) return "the device has no subgroups";
  const { subgroupMinSize: least = 4, subgroupMaxSize: most = 128 } = info;
  if (least >= 4 && most <= 128) return "";
  return `its subgroups have ${least} to ${most} threads, 4 to 128 are known`;
}
