/**
 * JSON for headers of files nobody vouches for. JSON.parse would keep the last of two equal keys, round integers past
 * 2^53, treat `__proto__` as a key like any other and follow any depth; here each of those is an error or impossible.
 */
export type Json = string | boolean | null | number | bigint | Json[] | Map<string, Json>;

export interface JsonLimits {
  readonly depth: number;
  /** Elements of one array. */
  readonly elements: number;
  /** Members of one object. */
  readonly members: number;
}

/** What is wrong, and at which character. */
export class JsonError extends Error {}

const escapes: { readonly [c: string]: string } = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

/** Integers come back as bigint, other numbers as number, objects as Map. @throws JsonError */
export function parseJson(text: string, limits: JsonLimits): Json {
  const parser = new Parser(text, limits);
  const value = parser.value(0);
  parser.space();
  if (parser.at < text.length) parser.fail(`unexpected ${parser.here()} after the end of the value`);
  return value;
}

class Parser {
  at = 0;
  readonly #text: string;
  readonly #limits: JsonLimits;

  constructor(text: string, limits: JsonLimits) {
    this.#text = text;
    this.#limits = limits;
  }

  fail(what: string): never {
    throw new JsonError(`${what} (character ${this.at})`);
  }

  here(): string {
    const c = this.#text[this.at];
    return c === undefined ? "end" : JSON.stringify(c);
  }

  space(): void {
    for (;;) {
      const c = this.#text.charCodeAt(this.at);
      if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return;
      this.at++;
    }
  }

  value(depth: number): Json {
    this.space();
    const c = this.#text[this.at];
    if ((c === "{" || c === "[") && depth >= this.#limits.depth) {
      this.fail(`nested more than ${this.#limits.depth} deep`);
    }
    if (c === "{") return this.#object(depth + 1);
    if (c === "[") return this.#array(depth + 1);
    if (c === '"') return this.#string();
    if (c === "-" || (c !== undefined && c >= "0" && c <= "9")) return this.#number();
    for (const [word, value] of [
      ["true", true],
      ["false", false],
      ["null", null],
    ] as const) {
      if (this.#text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.fail(`expected a value, found ${this.here()}`);
  }

  #expect(c: string, where: string): void {
    if (this.#text[this.at] !== c) this.fail(`expected ${JSON.stringify(c)} ${where}, found ${this.here()}`);
    this.at++;
  }

  #take(c: string): boolean {
    this.space();
    if (this.#text[this.at] !== c) return false;
    this.at++;
    return true;
  }

  #object(depth: number): Map<string, Json> {
    const members = new Map<string, Json>();
    this.at++;
    if (this.#take("}")) return members;
    do {
      this.space();
      if (this.#text[this.at] !== '"') this.fail(`expected a key in quotes, found ${this.here()}`);
      const key = this.#string();
      if (members.has(key)) this.fail(`key ${JSON.stringify(clip(key))} appears twice`);
      if (members.size >= this.#limits.members) this.fail(`an object of more than ${this.#limits.members} members`);
      this.space();
      this.#expect(":", "after a key");
      members.set(key, this.value(depth));
    } while (this.#take(","));
    this.#expect("}", "or a comma");
    return members;
  }

  #array(depth: number): Json[] {
    const elements: Json[] = [];
    this.at++;
    if (this.#take("]")) return elements;
    do {
      if (elements.length >= this.#limits.elements)
        this.fail(`an array of more than ${this.#limits.elements} elements`);
      elements.push(this.value(depth));
    } while (this.#take(","));
    this.#expect("]", "or a comma");
    return elements;
  }

  #string(): string {
    let out = "";
    let start = ++this.at;
    for (;;) {
      const c = this.#text.charCodeAt(this.at);
      if (Number.isNaN(c)) this.fail("a string without its closing quote");
      if (c < 0x20) this.fail("a control character in a string");
      if (c === 0x22) {
        out += this.#text.slice(start, this.at++);
        return out;
      }
      if (c === 0x5c) {
        out += this.#text.slice(start, this.at) + this.#escape();
        start = this.at;
      } else {
        this.at++;
      }
    }
  }

  #escape(): string {
    const c = this.#text[++this.at];
    if (c !== "u") {
      const plain = c === undefined ? undefined : escapes[c];
      if (plain === undefined) this.fail(`unknown escape ${this.here()}`);
      this.at++;
      return plain;
    }
    this.at++;
    const unit = this.#hex();
    if (unit < 0xd800 || unit > 0xdfff) return String.fromCharCode(unit);
    if (unit > 0xdbff || !this.#text.startsWith("\\u", this.at)) this.fail("half of a surrogate pair");
    this.at += 2;
    const low = this.#hex();
    if (low < 0xdc00 || low > 0xdfff) this.fail("half of a surrogate pair");
    return String.fromCharCode(unit, low);
  }

  #hex(): number {
    const digits = this.#text.slice(this.at, this.at + 4);
    if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.fail("expected four hexadecimal digits after \\u");
    this.at += 4;
    return Number.parseInt(digits, 16);
  }

  #number(): number | bigint {
    // The window bounds the work: a number of a million digits isn't parsed to be refused.
    const window = this.#text.slice(this.at, this.at + 40);
    const match = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/.exec(window);
    if (match === null) this.fail("not a number");
    const text = match[0];
    if (text.length === window.length && window.length === 40) this.fail("a number of more than 39 characters");
    this.at += text.length;
    const integer = match[2] === undefined && match[3] === undefined && text !== "-0";
    return integer ? BigInt(text) : Number(text);
  }
}

/** At most 80 characters of something that a stranger wrote. */
export function clip(text: string): string {
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
