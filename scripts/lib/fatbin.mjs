// What GPU code a library carries, read from its bytes (cuobjdump --list-elf would say the same, where there is one).
import { readFileSync } from "node:fs";

const magic = Buffer.from([0x50, 0xed, 0x55, 0xba]);
const headerBytes = 16;
const ptx = 1;

/**
 * The architectures of each of a library's CUDA objects: [["compute_80", "sm_80", "sm_90"], ["sm_90"]]; sm_90a counts as
 * sm_90. An object is a header (magic, version, its own size, size of what follows) and entries (kind, own size, size of the
 * code, architecture).
 */
export function cudaObjects(library) {
  const bytes = readFileSync(library);
  const found = [];
  for (let at = bytes.indexOf(magic); at >= 0; at = bytes.indexOf(magic, at + magic.length)) {
    if (at + headerBytes > bytes.length || bytes.readUInt16LE(at + 6) !== headerBytes) continue;
    const end = at + headerBytes + Number(bytes.readBigUInt64LE(at + 8));
    if (end > bytes.length) continue;
    const architectures = [];
    for (let entry = at + headerBytes; entry < end; ) {
      architectures.push(`${bytes.readUInt16LE(entry) === ptx ? "compute" : "sm"}_${bytes.readUInt32LE(entry + 28)}`);
      entry += bytes.readUInt32LE(entry + 4) + Number(bytes.readBigUInt64LE(entry + 8));
    }
    found.push(architectures);
  }
  return found;
}
