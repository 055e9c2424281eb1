/** Files nobody vouches for: each is taken or refused in the parser's own way, in time, whatever is in it. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { altered, corrupted, lasting } from "../src/corrupt.js";
import { parsers } from "../src/parsers.js";

const seconds = Number(process.env.TESSERA_FILES_SECONDS ?? 3);
const slow = 2000; // milliseconds of a processor that no small file may take

describe.each(parsers())("$name files", (parser) => {
  const timed = (bytes: Buffer) => {
    const begin = process.cpuUsage();
    parser.run(bytes);
    const { user, system } = process.cpuUsage(begin); // not the clock's time, which other programs take, too
    const took = (user + system) / 1000;
    if (took > slow) throw new Error(`${bytes.length} bytes took ${took.toFixed(0)} ms`);
  };

  it("are taken as they are", () => {
    expect(parser.good.length).toBeGreaterThan(0);
    for (const file of parser.good) timed(file);
  });

  it(`with bytes changed, for ${seconds} s`, { timeout: seconds * 1000 + 60_000 }, () => {
    fc.assert(fc.property(corrupted(parser.good), timed), lasting(seconds));
  });

  it(`with members changed, for ${seconds} s`, { timeout: seconds * 1000 + 60_000 }, () => {
    const texts = parser.name === "safetensors" ? [] : parser.good;
    for (const file of texts) {
      const values = altered(JSON.parse(file.toString("utf8")));
      fc.assert(
        fc.property(values, (value) => timed(Buffer.from(JSON.stringify(value) ?? "undefined"))),
        lasting(seconds / texts.length),
      );
    }
    if (texts.length > 0) return;
    for (const file of parser.good) {
      const length = Number(file.readBigUInt64LE(0));
      const data = file.subarray(8 + length);
      fc.assert(
        fc.property(altered(JSON.parse(file.subarray(8, 8 + length).toString("utf8"))), (value) => {
          const header = Buffer.from(JSON.stringify(value) ?? "");
          const prefix = Buffer.alloc(8);
          prefix.writeBigUInt64LE(BigInt(header.length));
          timed(Buffer.concat([prefix, header, data]));
        }),
        lasting(seconds / parser.good.length),
      );
    }
  });
});
