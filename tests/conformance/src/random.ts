/** A small seeded generator (splitmix32): the same numbers on every machine, so that a failure is reproduced by its name. */
export class Random {
  #state: number;

  constructor(seed: string | number) {
    let hash = 2166136261;
    for (const char of String(seed)) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619);
    this.#state = hash >>> 0;
  }

  /** 32 random bits. */
  bits(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  /** In [0, 1). */
  uniform(): number {
    return this.bits() / 4294967296;
  }

  /** An integer in [0, n). */
  below(n: number): number {
    return Math.floor(this.uniform() * n);
  }

  /** Bell-shaped, variance 1, within about +-3.5: a sum of uniforms, so that no libm takes part. */
  normal(): number {
    return (this.uniform() + this.uniform() + this.uniform() + this.uniform() - 2) * 1.7320508075688772;
  }

  /** 0 ... n-1 in random order. */
  permutation(n: number): number[] {
    const order = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [order[i], order[j]] = [order[j] as number, order[i] as number];
    }
    return order;
  }
}
