// README.zh-CN.md keeps step with README.md: the same sections, code, links and tables, and each section as it was when it was
// translated.
//   node scripts/translation.mjs --check   what differs; exits with 1 if anything does
//   node scripts/translation.mjs --stamp   after translating: says that the sections of now are those that were translated
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { line } from "./lib/counts.mjs";
import { root } from "./lib/sh.mjs";

const target = join(root, "README.zh-CN.md");
const stampPattern = /\n<!-- sections of README\.md: ([0-9a-f ]*) -->\n$/;
const english = sections(readFileSync(join(root, "README.md"), "utf8"));
const file = readFileSync(target, "utf8");
const chinese = sections(file.replace(stampPattern, "\n"));

function sections(text) {
  const parts = text.split(/^(?=#{1,6} )/m);
  return parts.map((part) => {
    const prose = part.replace(/```[\s\S]*?```/g, "");
    return {
      title: part.split("\n")[0],
      level: /^#*/.exec(part)[0].length,
      code: [...part.matchAll(/```[\s\S]*?```/g)].map(([block]) => block),
      links: [...prose.matchAll(/\]\(([^)]*)\)/g)].map(([, link]) => link).filter((link) => !/^README/.test(link)),
      table: [...prose.matchAll(/^\|.*\|$/gm)].map(([row]) => row.split("|").length),
      hash: createHash("sha256").update(part.trim()).digest("hex").slice(0, 8),
    };
  });
}

if (process.argv.includes("--stamp")) {
  const stamp = `\n<!-- sections of README.md: ${english.map(({ hash }) => hash).join(" ")} -->\n`;
  writeFileSync(target, `${file.replace(stampPattern, "\n").trimEnd()}\n${stamp}`);
} else {
  const problems = [];
  const stamped = (stampPattern.exec(file)?.[1] ?? "").split(" ");
  if (english.length !== chinese.length)
    problems.push(`README.md has ${english.length} sections, README.zh-CN.md ${chinese.length}`);
  english.forEach((section, i) => {
    const other = chinese[i];
    if (!other) return;
    for (const what of ["level", "code", "links", "table"])
      if (JSON.stringify(section[what]) !== JSON.stringify(other[what]))
        problems.push(`"${section.title}" and "${other.title}" differ in their ${what}`);
    if (stamped[i] !== section.hash) problems.push(`"${section.title}" was edited since it was translated`);
  });
  for (const problem of problems) console.log(problem);
  if (problems.length > 0)
    console.log("\nBring README.zh-CN.md up to date, then run `node scripts/translation.mjs --stamp`.");
  const failed = Math.min(problems.length, english.length);
  console.log(line({ passed: english.length - failed, failed, skipped: 0 }));
  process.exitCode = failed > 0 ? 1 : 0;
}
