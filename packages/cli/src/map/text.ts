/** What to call positions: the bytes of the text that q and k were made from, where the file tells it. */
export interface PositionText {
  readonly bytes: Uint8Array;
}

/** Only a text of exactly `positions` bytes can be laid beside them. */
export function textFor(metadata: ReadonlyMap<string, string>, positions: number): PositionText | undefined {
  const text = metadata.get("text");
  if (text === undefined || positions === 0) return undefined;
  const bytes = new TextEncoder().encode(text);
  return bytes.length === positions ? { bytes } : undefined;
}

/** One byte as a reader would want to see it. */
export function glyph(byte: number | undefined): string {
  if (byte === undefined) return "";
  if (byte === 0x20) return "␣";
  if (byte === 0x0a) return "⏎";
  if (byte > 0x20 && byte < 0x7f) return String.fromCharCode(byte);
  return `\\x${byte.toString(16).padStart(2, "0")}`;
}

/** The byte with those that led to it: "…and my spi[r]". */
export function inContext(text: PositionText, at: number, before = 18): string {
  const start = Math.max(0, at - before);
  const lead = Array.from(text.bytes.subarray(start, at), (byte) => (byte === 0x20 ? " " : glyph(byte))).join("");
  return `${start > 0 ? "…" : ""}${lead}[${glyph(text.bytes[at])}]`;
}

/** Escapes for XML, and replaces what XML can't hold at all. */
export function xml(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd")
    .replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
