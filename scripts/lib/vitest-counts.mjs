// A vitest reporter that prints the counts line of ../lanes.mjs.
import { add, line, none } from "./counts.mjs";

export default class CountsReporter {
  onTestRunEnd(modules, unhandledErrors) {
    const counts = none();
    add(counts, { failed: unhandledErrors.length });
    for (const module of modules) {
      let failed = 0;
      for (const test of module.children.allTests()) {
        const { state, note } = test.result();
        if (state === "passed") counts.passed++;
        else if (state === "failed") failed++;
        else add(counts, { skipped: 1, reasons: { [note ?? `${test.fullName} (no reason given)`]: 1 } });
      }
      // A file that can't be loaded, or whose hooks fail, has no failed test of its own.
      if (failed === 0 && !module.ok()) failed = 1;
      counts.failed += failed;
    }
    console.log(line(counts));
  }
}
