import { decode } from "@tessera/core";
import type { FloatTensor } from "./inputs.js";

/** The tensor's values, exactly. Not a copy if it is float32. */
export function floats(tensor: FloatTensor): Float32Array {
  return tensor.dtype === "f32" ? tensor.data : decode(tensor.data, tensor.dtype);
}
