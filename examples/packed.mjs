// Three sequences of different lengths in one call, with no padding, checked against the float64 oracle.
import { attention, oracle } from "@tessera/core";

const lengths = [5, 120, 33];
const starts = Int32Array.of(0, 5, 125, 158);
const [heads, kvHeads, dim] = [8, 2, 64];
const random = (count) => Float32Array.from({ length: starts.at(-1) * count * dim }, () => Math.random() - 0.5);
const tensor = (count) => ({ data: random(count), shape: [starts.at(-1), count, dim] });

const problem = {
  q: tensor(heads),
  k: tensor(kvHeads),
  v: tensor(kvHeads),
  cuSeqLensQ: starts,
  cuSeqLensK: starts,
  causal: true,
};
const { out } = await attention(problem);
const truth = oracle(problem);
const error = out.data.reduce((worst, x, i) => Math.max(worst, Math.abs(x - truth.out[i])), 0);
console.log(`${lengths.length} sequences, ${starts.at(-1)} tokens: largest error ${error.toExponential(1)}`);
