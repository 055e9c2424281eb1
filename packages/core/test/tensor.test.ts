import { afterAll, describe, expect, it } from "vitest";
import { encode } from "../src/codec.js";
import { Tensor } from "../src/tensor.js";
import { reference } from "./support.js";

const engine = await reference();
afterAll(() => engine.dispose());
const count = Float32Array.from({ length: 24 }, (_, i) => i);
const make = () => engine.tensor(count, { shape: [2, 3, 4] });

describe("tensors", () => {
  it("come back as they went, type by type", async () => {
    expect(await make().read()).toEqual(count);
    const half = encode(count, "f16");
    const f16 = engine.tensor(half, { shape: [24], dtype: "f16" });
    expect(await f16.read()).toEqual(half);
    expect(await f16.readFloat32()).toEqual(count);
    const bf16 = engine.tensor(encode(count, "bf16"), { shape: [24], dtype: "bf16" });
    expect(await bf16.readFloat32()).toEqual(count);
    const ints = engine.tensor(Int32Array.of(-1, 2), { shape: [2] });
    expect(await ints.read()).toEqual(Int32Array.of(-1, 2));
    const bools = engine.tensor([true, false, true], { shape: [3] });
    expect(await bools.read()).toEqual(Uint8Array.of(1, 0, 1));
    expect(await bools.readFloat32()).toEqual(Float32Array.of(1, 0, 1));
    const q8 = encode(new Float32Array(64).fill(2), "q8_0");
    const blocks = engine.tensor(q8, { shape: [2, 32], dtype: "q8_0" });
    expect(await blocks.read()).toEqual(q8);
    expect(blocks.bytes).toBe(68);
  });

  it("begin empty, if asked", async () => {
    const t = engine.empty({ shape: [2, 32], dtype: "q8_0" });
    expect([t.bytes, t.shape, t.dtype]).toEqual([68, [2, 32], "q8_0"]);
    expect((await engine.empty({ shape: [0, 3], dtype: "f16" }).read()).length).toBe(0);
    const refused: [object, RegExp][] = [
      [{ shape: [1], dtype: "f64" }, /dtype is "f64"; allowed: f32/],
      [{ shape: [-1], dtype: "f32" }, /shape/],
      [{ shape: [33], dtype: "q8_0" }, /32/],
      [{ shape: [1], type: "f32" }, /no option "type"/],
    ];
    for (const [options, message] of refused) expect(() => engine.empty(options as never)).toThrowError(message);
  });

  it("copy from one another, on the device", async () => {
    const [target, source] = [
      make(),
      engine.tensor(
        count.map((value) => value + 100),
        { shape: [4, 6] },
      ),
    ];
    target.slice(0, 1, 2).copyFrom(source.slice(0, 0, 2));
    source.write(new Float32Array(24));
    expect(await target.read()).toEqual(count.map((value) => (value < 12 ? value : value + 100 - 12)));
    const refused: [() => void, RegExp][] = [
      [() => target.copyFrom(source.transpose(0, 1)), /source has strides/],
      [() => target.transpose(0, 1).copyFrom(source), /this tensor has strides/],
      [() => target.copyFrom(source.slice(0, 0, 2)), /allowed: 24 elements of f32/],
      [() => target.slice(0, 0, 1).copyFrom(target.slice(0, 0, 1)), /shares memory/],
      [() => target.copyFrom(count as never), /no tensor of this engine/],
    ];
    for (const [call, message] of refused) expect(call).toThrowError(message);
  });

  it("take data when they are made, not later", async () => {
    const data = Float32Array.of(1, 2);
    const t = engine.tensor(data, { shape: [2] });
    data[0] = 9;
    const shape = [2, 1];
    const strides = [1, 1];
    const own = engine.tensor(data, { shape, strides });
    shape[0] = 7;
    strides[0] = 7;
    expect([own.shape, own.strides]).toEqual([
      [2, 1],
      [1, 1],
    ]);
    expect([...(await t.read())]).toEqual([1, 2]);
    t.write(Float32Array.of(3, 4));
    expect([...(await t.read())]).toEqual([3, 4]);
    expect(() => t.write(new Float32Array(3))).toThrow(/write of 12 bytes; allowed: 8/);
    expect(() => t.write(Int32Array.of(1, 2))).toThrow(/write\.dtype is "f32"; allowed for a Int32Array: "i32"/);
  });

  it("have views that share their memory", async () => {
    const t = make();
    const used = engine.bytesInUse;
    expect(await t.slice(1, 1).read()).toEqual(
      Float32Array.of(4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23),
    );
    expect(await t.slice(0, 1).slice(1, 0, 1).read()).toEqual(Float32Array.of(12, 13, 14, 15));
    const turned = t.transpose(0, 2);
    expect(turned.shape).toEqual([4, 3, 2]);
    expect([...(await turned.read())].slice(0, 6)).toEqual([0, 12, 4, 16, 8, 20]);
    const wide = t.slice(0, 0, 1).expand([5, 3, 4]);
    expect(wide.strides).toEqual([0, 4, 1]);
    expect([...(await wide.read())].slice(12, 24)).toEqual([...count.subarray(0, 12)]);
    expect(t.expand([2, 2, 3, 4]).strides).toEqual([0, 12, 4, 1]);
    expect((await t.slice(1, 0, 0).read()).length).toBe(0);
    expect(engine.bytesInUse).toBe(used);
  });

  it("reshape where that is free, and say so where it isn't", async () => {
    const t = make();
    expect(t.reshape([6, 4]).strides).toEqual([4, 1]);
    expect(t.reshape([2, 1, 12]).strides.at(-1)).toBe(1);
    expect(t.reshape([4, 3, 2]).strides).toEqual([6, 2, 1]);
    // Rows with a gap: splitting and joining within a row is free, across is not.
    const gap = engine.tensor(new Float32Array(100), { shape: [3, 8], strides: [20, 1] });
    expect(gap.reshape([3, 2, 4]).strides).toEqual([20, 4, 1]);
    expect(() => gap.reshape([24])).toThrow(/needs a copy/);
    expect(() => gap.reshape([6, 4])).toThrow(/needs a copy/);
    expect(() => t.reshape([5, 5])).toThrow(/25 elements; allowed: 24/);
    const rows = t.transpose(0, 1);
    expect(rows.reshape([3, 2, 2, 2]).strides).toEqual([4, 12, 2, 1]);
    expect(() => rows.reshape([6, 4])).toThrow(/needs a copy/);
    expect(await rows.reshape([3, 2, 2, 2]).read()).toEqual(await rows.read());
    const slices = t.slice(1, 0, 2).reshape([2, 8]);
    expect(slices.strides).toEqual([12, 1]);
    expect(await slices.read()).toEqual(await t.slice(1, 0, 2).read());
  });

  it("of block formats move in whole blocks", async () => {
    const values = Float32Array.from({ length: 128 }, (_, i) => (i % 32) - 16);
    const t = engine.tensor(encode(values, "q4_0"), { shape: [2, 64], dtype: "q4_0" });
    expect(await t.slice(1, 32, 64).readFloat32()).toEqual((await t.readFloat32()).filter((_, i) => i % 64 >= 32));
    expect(() => t.slice(1, 0, 16)).toThrow(/multiples of 32/);
    expect(() => t.transpose(0, 1)).toThrow(/stored in blocks/);
  });

  it.each([
    [
      () => engine.tensor(new Uint16Array(2), { shape: [2] } as never),
      /tensor\.dtype is missing: a Uint16Array may hold "f16", "bf16"; say which/,
    ],
    [() => engine.tensor(new Uint8Array(2), { shape: [2] } as never), /tensor\.dtype is missing/],
    [
      () => engine.tensor(new Float32Array(2), { shape: [2], dtype: "f16" } as never),
      /dtype is "f16"; allowed for a Float32Array: "f32"/,
    ],
    [() => engine.tensor(new Float64Array(2) as never, { shape: [2] }), /Float64Array; allowed/],
    [() => engine.tensor([1, 2] as never, { shape: [2] }), /data\[0\] is 1; allowed: true or false/],
    [() => engine.tensor(new Float32Array(2), { shape: [3] }), /needs 12 bytes of f32, it has 8/],
    [() => engine.tensor(new Float32Array(4), { shape: [3] }), /data has 16 bytes; allowed: 12/],
    [() => engine.tensor(new Float32Array(4), { shape: [] }), /1 to 4 extents/],
    [() => engine.tensor(new Float32Array(4), { shape: [1, 1, 1, 1, 4] }), /1 to 4 extents/],
    [() => engine.tensor(new Float32Array(4), { shape: [2, 2], strides: [1, 2] }), /must be contiguous/],
    [() => engine.tensor(new Float32Array(4), { shape: [4], stride: [1] } as never), /no option "stride"/],
    [() => engine.tensor(new Float32Array(4), undefined as never), /takes \{ shape/],
    [() => make().slice(3, 0), /dimension is 3; allowed: whole numbers from 0 to 2/],
    [() => make().slice(0, 2, 1), /begin is 2; allowed/],
    [() => make().expand([2, 3, 5]), /expand to \[2, 3, 5\]; allowed: \[2, 3, 4\]/],
  ])("mistake %#", (act, message) => {
    expect(act).toThrow(message);
  });

  it("half floats of the runtime go in and come out through their bits", async () => {
    // Stands for Node 24's Float16Array: the tag and the bytes are what counts.
    class Float16Array extends Uint16Array {
      override get [Symbol.toStringTag]() {
        return "Float16Array" as never;
      }
    }
    const bits = encode([1, 2, 3, 4], "f16");
    const half = new Float16Array(bits) as never;
    const t = engine.tensor(half, { shape: [1, 1, 1, 4] });
    expect(t.dtype).toBe("f16");
    expect(await t.read()).toEqual(bits);
    const x = { data: half, shape: [1, 1, 1, 4] };
    const { out } = await engine.attention({ q: x, k: x, v: x });
    expect(out.data).toBeInstanceOf(Float16Array);
    expect(out.dtype).toBe("f16");
    expect([...(out.data as never as Uint16Array)]).toEqual([...bits]);
  });

  it("are known by their brand", () => {
    expect(make()).toBeInstanceOf(Tensor);
    expect({ [Symbol.for("tessera.tensor")]: true } instanceof Tensor).toBe(true);
    expect({} instanceof Tensor).toBe(false);
  });
});
