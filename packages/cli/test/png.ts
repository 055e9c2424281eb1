import { crc32, inflateSync } from "node:zlib";

/** Reads back an 8-bit palette PNG without filters: what the map writes, and nothing else. Every checksum is checked. */
export function decodePng(bytes: Buffer): {
  width: number;
  height: number;
  pixels: Uint8Array;
  palette: number[][];
} {
  if (bytes.toString("latin1", 0, 8) !== "\x89PNG\r\n\x1a\n") throw new Error("no PNG signature");
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    const body = bytes.subarray(at + 4, at + 8 + length);
    if (crc32(body) !== bytes.readUInt32BE(at + 8 + length)) throw new Error("wrong checksum");
    chunks.set(body.toString("latin1", 0, 4), body.subarray(4));
    at += 12 + length;
  }
  const header = chunks.get("IHDR")!;
  if (header.toString("hex", 8) !== "0803000000") throw new Error("not an 8-bit palette image");
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const lines = inflateSync(chunks.get("IDAT")!);
  if (lines.length !== (width + 1) * height) throw new Error(`${lines.length} bytes of pixels`);
  const pixels = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    if (lines[y * (width + 1)] !== 0) throw new Error("filtered line");
    pixels.set(lines.subarray(y * (width + 1) + 1, (y + 1) * (width + 1)), y * width);
  }
  const colours = chunks.get("PLTE")!;
  const alpha = chunks.get("tRNS")!;
  const palette = Array.from(alpha, (a, i) => [...colours.subarray(3 * i, 3 * i + 3), a]);
  return { width, height, pixels, palette };
}

/** Every raster of an SVG, in order. */
export function rasters(svg: string): ReturnType<typeof decodePng>[] {
  return [...svg.matchAll(/href="data:image\/png;base64,([^"]+)"/g)].map((match) =>
    decodePng(Buffer.from(match[1]!, "base64")),
  );
}

/** Throws unless the text is well-formed XML (of the plain kind: no doctype, no CDATA). Returns the number of elements. */
export function checkXml(text: string): number {
  if (/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/u.test(text)) throw new Error("bad character");
  const open: string[] = [];
  let elements = 0;
  let at = 0;
  for (const tag of text.matchAll(/<[^>]*>/g)) {
    const between = text.slice(at, tag.index);
    checkText(between);
    if (open.length === 0 && between.trim() !== "") throw new Error(`text outside the root: ${between}`);
    at = tag.index + tag[0].length;
    const close = /^<\/([\w:]+)>$/.exec(tag[0]);
    if (close) {
      if (open.pop() !== close[1]) throw new Error(`${tag[0]} closes nothing`);
      continue;
    }
    const start = /^<([\w:]+)((?:\s+[\w:-]+="[^"<]*")*)\s*(\/?)>$/.exec(tag[0]);
    if (start === null) throw new Error(`not a tag: ${tag[0].slice(0, 100)}`);
    checkText(start[2]!);
    const names = [...start[2]!.matchAll(/([\w:-]+)="/g)].map((match) => match[1]);
    if (new Set(names).size < names.length) throw new Error(`an attribute twice: ${tag[0].slice(0, 100)}`);
    if (open.length === 0 && elements > 0) throw new Error("two roots");
    elements++;
    if (start[3] === "") open.push(start[1]!);
  }
  if (open.length > 0 || text.slice(at).trim() !== "") throw new Error(`not closed: ${open}`);
  return elements;
}

function checkText(text: string): void {
  if (/&(?!(?:#\d+|#x[\da-fA-F]+|amp|lt|gt|quot|apos);)/.test(text) || text.includes("<")) {
    throw new Error(`unescaped: ${text.slice(0, 100)}`);
  }
}
