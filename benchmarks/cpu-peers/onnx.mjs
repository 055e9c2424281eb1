// A one-node ONNX model as bytes: the few protobuf messages that it needs (onnx.proto3 names the field numbers).

function varint(n) {
  const out = [];
  let rest = BigInt.asUintN(64, BigInt(n));
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    out.push(rest ? low | 128 : low);
  } while (rest);
  return Buffer.from(out);
}

const field = (id, wire, body) => Buffer.concat([varint((id << 3) | wire), body]);
const int = (id, n) => field(id, 0, varint(n));
const message = (id, body) => field(id, 2, Buffer.concat([varint(body.length), body]));
const string = (id, text) => message(id, Buffer.from(text));

const elementTypes = { float32: 1, int32: 6, float16: 10 };

function valueInfo({ name, type, shape }) {
  const dims = Buffer.concat(shape.map((extent) => message(1, int(1, extent))));
  const tensor = Buffer.concat([int(1, elementTypes[type]), message(2, dims)]);
  return Buffer.concat([string(1, name), message(2, message(1, tensor))]);
}

const attributeInt = ([name, n]) => Buffer.concat([string(1, name), int(3, n), int(20, 2)]);

/**
 * @param spec `{ op, domain, opset, inputs, outputs, attributes }`: inputs and outputs are `{ name, type, shape }` (an
 *   input may be null: left out), attributes are integers.
 */
export function oneNodeModel({ op, domain, opset, inputs, outputs, attributes }) {
  const node = Buffer.concat([
    ...inputs.map((input) => string(1, input?.name ?? "")),
    ...outputs.map((output) => string(2, output.name)),
    string(4, op),
    ...Object.entries(attributes).map((attribute) => message(5, attributeInt(attribute))),
    string(7, domain),
  ]);
  const graph = Buffer.concat([
    message(1, node),
    string(2, "graph"),
    ...inputs.filter(Boolean).map((input) => message(11, valueInfo(input))),
    ...outputs.map((output) => message(12, valueInfo(output))),
  ]);
  const opsets = [message(8, Buffer.concat([string(1, ""), int(2, opset)]))];
  if (domain) opsets.push(message(8, Buffer.concat([string(1, domain), int(2, 1)])));
  return Buffer.concat([int(1, 9), message(7, graph), ...opsets]);
}
