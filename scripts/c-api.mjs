// docs/c-api.md, out of the comments of tessera.h. (Doxygen would want a theme, a Markdown converter and a place to run; the
// header is one file in one style.)
//   node scripts/c-api.mjs           writes it
//   node scripts/c-api.mjs --check   exits with 1 if it isn't what would be written, or if it lacks a public name
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { line } from "./lib/counts.mjs";
import { root } from "./lib/sh.mjs";

const header = readFileSync(join(root, "packages/core/include/tessera/tessera.h"), "utf8");
const target = join(root, "docs/c-api.md");

/** A comment's text, without its stars; "- " starts a line of its own, an empty line a paragraph. */
function textOf(comment) {
  return comment
    .replace(/^\/\*\*<?/, "")
    .replace(/\*\/$/, "")
    .split("\n")
    .map((row) => row.replace(/^\s*\* ?/, "").trimEnd())
    .join("\n")
    .replace(/^@file.*\n/m, "")
    .replace(/::(\w+(?:::\w+)?)/g, "`$1`")
    .replaceAll("+-", "±")
    .trim();
}
const cell = (text) => text.replace(/\s*\n\s*/g, " ").replaceAll("|", "\\|");

/** The header in pieces: { kind: "section" | "comment" | "code", text }. */
function pieces() {
  const body = header.slice(header.indexOf("/** Version of this contract"));
  const found = [];
  const pattern =
    /\/\* -+ ([^*]+?) \*\/|\/\*\*[\s\S]*?\*\/|#define (?:[^\\\n]*\\\n)*[^\n]*|#[^\n]*|typedef[^;{]*;|(?:typedef struct \w+|enum|typedef enum) \{[\s\S]*?\n\}[^;]*;|TSR_EXPORT[^;]*;/g;
  for (const match of body.matchAll(pattern)) {
    const [text, section] = match;
    if (section) found.push({ kind: "section", text: section.replace(/^-+ /, "") });
    else if (text.startsWith("/**")) found.push({ kind: "comment", text: textOf(text) });
    else if (text.startsWith("#define TSR_") && !text.startsWith("#define TSR_EXPORT"))
      found.push({ kind: "code", text });
    else if (!text.startsWith("#")) found.push({ kind: "code", text });
  }
  return found;
}

/** "seq_lens_q" and "seq_lens_k" are a pair: what is said of the first holds for the second. */
const pairOf = (name) => name.replace(/(^|_)(q|k|v|kv|left|right)(?=_|s?$)/g, "$1");

/** Members of a struct: [name, declaration, comment]. */
function members(text) {
  const found = [];
  let comment = "";
  for (const [piece] of insideOf(text).matchAll(/\/\*\*[\s\S]*?\*\/|[^;/]+;/g)) {
    if (piece.startsWith("/**")) {
      comment = textOf(piece);
      continue;
    }
    const declared = piece.trim().replace(/;$/, "").replace(/\s+/g, " ");
    const name = (/\(\*(\w+)\)/.exec(declared) ?? /(\w+)(?:\[\w+\])*$/.exec(declared))[1];
    const last = found.at(-1);
    const paired = comment === "" && last?.[2] && pairOf(last[0]) === pairOf(name);
    found.push([name, declared, paired ? `as \`${last[0]}\`` : comment]);
    comment = "";
  }
  return found;
}

/** Values of an enum: [name, value, comment]. */
function enumerators(text) {
  const found = [];
  let comment = "";
  for (const [piece] of insideOf(text).matchAll(/\/\*\*[\s\S]*?\*\/|TSR_\w+ = [^,/\n]+/g)) {
    if (piece.startsWith("/**<")) found.at(-1)[2] = textOf(piece);
    else if (piece.startsWith("/**")) comment = textOf(piece);
    else {
      const [name, value] = piece.split(" = ");
      found.push([name, value.trim().replace(/(\d)u\b/g, "$1"), comment]);
      comment = "";
    }
  }
  return found;
}

const insideOf = (text) => text.slice(text.indexOf("{") + 1, text.lastIndexOf("}"));

const table = (head, body) =>
  [
    `| ${head.join(" | ")} |`,
    `|${"---|".repeat(head.length)}`,
    ...body.map((row) => `| ${row.map(cell).join(" | ")} |`),
  ].join("\n");
const code = (text) => `\`${text}\``;

function document() {
  const out = [
    "# C API reference",
    "",
    "<!-- Written by scripts/c-api.mjs from packages/core/include/tessera/tessera.h. Edit that. -->",
    "",
    "What each name of [`tessera.h`](../packages/core/include/tessera/tessera.h) is. How they are used together is in",
    "[contract.md](contract.md), a whole program in [embedding.md](embedding.md).",
    "",
    textOf(header.slice(0, header.indexOf("*/") + 2)).replace(/^ (- | {2}\S)/gm, "$1"),
    "",
    "## General",
    "",
  ];
  let comment = "";
  for (const { kind, text } of pieces()) {
    if (kind === "section") {
      out.push(`## ${text[0].toUpperCase()}${text.slice(1)}`, "");
      comment = "";
    } else if (kind === "comment") comment = text;
    else {
      out.push(...declaration(text, comment));
      comment = "";
    }
  }
  return `${out
    .join("\n")
    .replace(/\n{3,}/g, "\n\n")
    .trimEnd()}\n`;
}

function declaration(text, comment) {
  const said = comment ? [comment, ""] : [];
  const named = (name, ...rest) => [`### ${name}`, "", ...said, ...rest, ""];
  const define = /^#define (\w+)\s+([\s\S]*)$/.exec(text);
  if (define) {
    // Sizes of arrays explain themselves where they are used.
    return [`### ${define[1]}`, "", ...said, `${code(define[2].trim())}`, ""];
  }
  if (/^enum/.test(text)) {
    const rest = enumerators(text).map(([name, value, words]) => [code(name), value, words]);
    return [...said, table(["name", "value", "meaning"], rest), ""];
  }
  if (text.includes("{")) {
    const name = /\}\s*(\w+)\s*;$/.exec(text)[1];
    const body = members(text).map(([member, declared, words]) => [code(member), code(declared), words]);
    return named(name, table(["member", "declared", "meaning"], body));
  }
  const exported = /^TSR_EXPORT ([\s\S]*);$/.exec(text);
  if (exported) return named(/(\w+)\(/.exec(exported[1])[1], `\`\`\`c\n${exported[1]};\n\`\`\``);
  const opaque = /^typedef struct (\w+) \w+;$/.exec(text);
  if (opaque) return [`### ${opaque[1]}`, "", ...said, "Opaque: made and destroyed by functions of `tsr_backend`.", ""];
  const pointer = /\(\*(\w+)\)/.exec(text);
  if (pointer) return named(pointer[1], `\`\`\`c\n${text}\n\`\`\``);
  const plain = /^typedef (\w+) (\w+);$/.exec(text);
  return [`### ${plain[2]}`, "", ...said, `${code(text)}`, ""];
}

const text = document();
if (process.argv.includes("--check")) {
  const same = existsSync(target) && readFileSync(target, "utf8") === text;
  if (!same) console.log("docs/c-api.md isn't what tessera.h says: run `node scripts/c-api.mjs`");
  const names = [...header.matchAll(/^(?:typedef .*? |#define )((?:tsr|TSR)_\w+)/gm)].map(([, name]) => name);
  const missing = names.filter((name) => !text.includes(name) && !/^TSR_EXPORT$/.test(name));
  for (const name of missing) console.log(`docs/c-api.md lacks ${name}`);
  const failed = (same ? 0 : 1) + missing.length;
  console.log(line({ passed: names.length + 1 - failed, failed, skipped: 0 }));
  process.exitCode = failed > 0 ? 1 : 0;
} else writeFileSync(target, text);
