/** Device memory full of random numbers, of which cases cut their inputs. */
import { type CacheDType, type Engine, encode, type HostKv, type Tensor } from "@tessera/core";
import { normals, period } from "./random.js";

const blocks: { readonly [K in CacheDType]: { readonly block: number; readonly bytes: number } } = {
  f32: { block: 1, bytes: 4 },
  f16: { block: 1, bytes: 2 },
  bf16: { block: 1, bytes: 2 },
  f8_e4m3: { block: 1, bytes: 1 },
  q8_0: { block: 32, bytes: 34 },
  q4_0: { block: 32, bytes: 18 },
};

export function bytesOf(dtype: CacheDType, count: number): number {
  return (count / blocks[dtype].block) * blocks[dtype].bytes;
}

// Whatever the type, a tensor that starts at a multiple of this many elements starts at a multiple of 256 bytes.
const step = 8192;

let gaussian: Float32Array | undefined;
const encoded = new Map<CacheDType, ReturnType<typeof encode>>();

function periodOf(dtype: CacheDType): ReturnType<typeof encode> {
  gaussian ??= normals(period);
  let data = encoded.get(dtype);
  if (!data) {
    data = encode(gaussian, dtype);
    encoded.set(dtype, data);
  }
  return data;
}

/** A tensor cut out of an arena, and where it begins there. */
export interface Cut {
  readonly tensor: Tensor<CacheDType>;
  readonly dtype: CacheDType;
  readonly shape: readonly number[];
  readonly start: number;
}

/** The values of some rows of a cut: elements [row · stride + from, + count) for each row, one after the other. */
export function hostRows(cut: Cut, rows: Iterable<number>, stride: number, from: number, count: number): HostKv {
  const { block, bytes } = blocks[cut.dtype];
  const data = periodOf(cut.dtype);
  const list = [...rows];
  const unit = block > 1 ? bytes : 1;
  const Elements = data.constructor as new (length: number) => Uint8Array;
  const result = new Elements((list.length * count * unit) / block);
  let to = 0;
  for (const row of list) {
    for (let i = 0; i < count; i += block) {
      const at = (((cut.start + row * stride + from + i) % period) / block) * unit;
      for (let u = 0; u < unit; u++) result[to++] = (data as Uint8Array)[at + u]!;
    }
  }
  return { data: result, dtype: cut.dtype, shape: [1, list.length, 1, count] } as unknown as HostKv;
}

/** All arenas of an engine. Each grows to what the largest case needs. */
export class Arenas {
  readonly #engine: Engine;
  readonly #byType = new Map<CacheDType, { readonly tensor: Tensor<CacheDType>; used: number }>();

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Starts a case: cuts begin at the front again, and each type has room for `counts`. */
  async begin(counts: ReadonlyMap<CacheDType, number>): Promise<void> {
    for (const [dtype, arena] of this.#byType) {
      // What this case doesn't use makes room for what it does.
      if (!counts.has(dtype) || arena.tensor.size < counts.get(dtype)!) {
        arena.tensor.dispose();
        this.#byType.delete(dtype);
      } else arena.used = 0;
    }
    await this.#engine.synchronize();
    for (const [dtype, count] of counts) {
      if (!this.#byType.has(dtype)) this.#byType.set(dtype, { tensor: this.#filled(dtype, count), used: 0 });
    }
  }

  /** Elements that a cut of `count` takes. */
  static room(count: number): number {
    return Math.ceil(count / step) * step;
  }

  cut(dtype: CacheDType, shape: readonly number[]): Cut {
    const arena = this.#byType.get(dtype)!;
    const count = shape.reduce((a, b) => a * b, 1);
    const start = arena.used;
    arena.used += Arenas.room(count);
    const tensor = arena.tensor.slice(0, start, start + count).reshape(shape);
    return { tensor, dtype, shape, start };
  }

  dispose(): void {
    for (const { tensor } of this.#byType.values()) tensor.dispose();
    this.#byType.clear();
  }

  #filled(dtype: CacheDType, count: number): Tensor<CacheDType> {
    const whole = Math.ceil(count / period) * period;
    const tensor = this.#engine.empty({ shape: [whole], dtype });
    tensor.slice(0, 0, period).write(periodOf(dtype) as never);
    // What is there is copied behind itself until it is full.
    for (let there = period; there < whole; ) {
      const more = Math.min(there, whole - there);
      tensor.slice(0, there, there + more).copyFrom(tensor.slice(0, 0, more));
      there += more;
    }
    return tensor;
  }
}
