/** As much of the safetensors format as this page's own file needs: a header of JSON, then the tensors. */
export interface FileTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: ArrayBuffer;
}

export function readTensors(file: ArrayBuffer): Map<string, FileTensor> {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length))) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  return new Map(
    Object.entries(header)
      .filter(([name]) => name !== "__metadata__")
      .map(
        ([
          name,
          {
            dtype,
            shape,
            data_offsets: [from, to],
          },
        ]) => [name, { dtype, shape, bytes: file.slice(8 + length + from, 8 + length + to) }],
      ),
  );
}
