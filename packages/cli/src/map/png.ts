import { crc32, deflateSync } from "node:zlib";

export interface IndexedImage {
  readonly width: number;
  readonly height: number;
  /** One palette index a pixel, row by row. */
  readonly pixels: Uint8Array;
  /** RGBA, up to 256 entries. */
  readonly palette: readonly (readonly [number, number, number, number])[];
}

/** An 8-bit palette PNG: the index survives, so that a picture of weights can be read back as weights. */
export function encodePng({ width, height, pixels, palette }: IndexedImage): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8); // 8 bits, palette, deflate, no filter, not interlaced
  const lines = Buffer.alloc((width + 1) * height); // each line begins with its filter: 0, none
  for (let y = 0; y < height; y++) lines.set(pixels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("PLTE", Buffer.from(palette.flatMap((entry) => entry.slice(0, 3)))),
    chunk("tRNS", Buffer.from(palette.map(([, , , a]) => a))),
    chunk("IDAT", deflateSync(lines, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  out.set(body, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}
