import { run } from "./program.js";
import { exit } from "./ui/exit.js";
import { interrupt } from "./ui/interrupt.js";

let unwritten = false;
// A reader that has seen enough (`| head`) is no failure: the command ends as if it had been read to the end.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE" || unwritten) return;
  unwritten = true;
  process.stderr.write(`tessera: can't write the output: ${error.message}\n`);
  process.exitCode = exit.usage;
});
// Nobody is left to tell it to.
process.stderr.on("error", () => {});
// Through exit, so that a half-written file is removed. A command that has something to save goes first, once.
process.on("SIGINT", () => {
  if (!interrupt()) process.exit(130);
});
process.once("SIGTERM", () => process.exit(143));

const code = await run(
  process.argv.slice(2),
  (text) => void process.stdout.write(text),
  (text) => void process.stderr.write(text),
);
process.exitCode = unwritten ? exit.usage : code;
