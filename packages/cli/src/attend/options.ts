import type { OracleOptions } from "@tessera/core";
import type { Inputs } from "./inputs.js";
import type { Settings } from "./settings.js";

/** Options of the call, all on the host: what the engine computes and what the oracle is asked are the same object. */
export function optionsOf(inputs: Inputs, settings: Settings): OracleOptions {
  const options: { [name: string]: unknown } = {
    q: inputs.q,
    k: inputs.k,
    v: inputs.v,
    causal: settings.causal ?? false,
    returnLse: true,
  };
  const give = (name: string, value: unknown) => {
    if (value !== undefined) options[name] = value;
  };
  give("align", settings.align);
  give("window", settings.window);
  give("scale", settings.scale);
  give("softcap", settings.softcap);
  give("kernel", settings.kernel);
  give("numSplits", settings.numSplits);
  give("bias", inputs.bias);
  give("mask", inputs.mask);
  give("sinks", inputs.sinks);
  give("alibiSlopes", inputs.alibiSlopes);
  give("seqLensQ", inputs.seqLensQ);
  give("seqLensK", inputs.seqLensK);
  give("cuSeqLensQ", inputs.cuSeqLensQ);
  give("cuSeqLensK", inputs.cuSeqLensK);
  // A file can hold combinations that the types rule out; the engine refuses those by name.
  return options as unknown as OracleOptions;
}
