/**
 * Weight to colour. The ramp is drawn in OKLCH: lightness rises evenly, so that equal steps look equal and the order
 * survives a grey printer and colour-blind eyes; hue runs from indigo through red to pale yellow on the way.
 */
export type Rgb = readonly [number, number, number];

/** Index 0 of the palette: the key is hidden from the query. It's transparent, and the page hatches what lies below. */
export const hidden = 0;
const levels = 255;

/** Weights are shown on a logarithmic scale from `floor` (and anything below it) to 1. */
export class Scale {
  readonly floor: number;

  constructor(keys: number) {
    // Two decades below an even spread: what is fainter than that is as good as nothing.
    this.floor = 10 ** -Math.min(8, Math.max(2, Math.ceil(Math.log10(Math.max(1, keys))) + 1));
  }

  /** 1...255; 1 is zero, or fainter than the floor. */
  index(weight: number): number {
    if (!(weight > this.floor)) return 1;
    const t = 1 - Math.log(Math.min(1, weight)) / Math.log(this.floor);
    return 1 + Math.max(1, Math.round(t * (levels - 1)));
  }

  /** The weight that an index stands for; 0 for the lowest. */
  weight(index: number): number {
    return index <= 1 ? 0 : this.floor ** (1 - (index - 1) / (levels - 1));
  }

  /** Where a weight stands on the ramp, 0...1. */
  position(weight: number): number {
    return (this.index(weight) - 1) / (levels - 1);
  }
}

export function palette(): [number, number, number, number][] {
  const entries: [number, number, number, number][] = [[0, 0, 0, 0]];
  for (let i = 0; i < levels; i++) entries.push([...ramp(i / (levels - 1)), 255]);
  return entries;
}

export function ramp(t: number): Rgb {
  const lightness = 0.14 + 0.83 * t;
  const hue = ((275 + 185 * t ** 0.9) * Math.PI) / 180;
  let chroma = 0.035 + 0.19 * Math.sin(Math.PI * Math.min(1, 0.08 + 0.84 * t)) ** 0.9;
  for (;;) {
    const linear = fromOklab(lightness, chroma * Math.cos(hue), chroma * Math.sin(hue));
    if (chroma < 1e-3 || linear.every((c) => c >= -1e-4 && c <= 1.0001)) {
      const [r, g, b] = linear.map(encode) as [number, number, number];
      return [r, g, b];
    }
    chroma *= 0.97; // out of sRGB: less of it, same lightness and hue
  }
}

/** OKLab to linear sRGB (Ottosson, 2020). */
function fromOklab(lightness: number, a: number, b: number): [number, number, number] {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

function encode(linear: number): number {
  const c = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055));
}

export function hex(rgb: Rgb): string {
  return `#${rgb.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
}
