/** The back end in real headless Chromium: the example's page, and a part of the conformance table. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { build } from "vite";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { adapter, full } from "./adapter.js";

const root = join(import.meta.dirname, "../../..");
const example = join(root, "examples/browser");
const browsers = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = browsers.find((path) => path && existsSync(path));
const flags = [
  "--no-sandbox",
  "--disable-dev-shm-usage",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-dawn-features=disable_workgroup_init",
];
const types: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** Files of a folder, from localhost: WebGPU wants a secure context. */
function serve(folder: string): Promise<{ server: Server; url: string }> {
  const server = createServer((request, response) => {
    const path = join(folder, decodeURIComponent((request.url ?? "/").split("?")[0]!));
    const file = path.endsWith("/") ? join(path, "index.html") : path;
    if (!file.startsWith(folder) || !existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    response
      .writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream" })
      .end(readFileSync(file));
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () =>
      resolve({ server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
    );
  });
}

describe.runIf(adapter === "chromium")("in Chromium", () => {
  const folder = mkdtempSync(join(tmpdir(), "tessera-page-"));
  let browser: Browser | undefined;
  let served: { server: Server; url: string };
  let page: Page;
  let complaints: string[];

  beforeAll(async () => {
    if (executablePath === undefined) return;
    const { status, stderr } = spawnSync(
      "npx",
      ["vite", "build", "--outDir", join(folder, "example"), "--logLevel", "warn"],
      {
        cwd: example,
        encoding: "utf8",
      },
    );
    expect({ status, stderr }).toMatchObject({ status: 0 });
    await build({
      configFile: false,
      logLevel: "warn",
      build: {
        lib: { entry: join(import.meta.dirname, "page/table.ts"), formats: ["es"], fileName: () => "table.js" },
        outDir: join(folder, "table"),
        target: "es2022",
      },
    });
    served = await serve(folder);
    browser = await puppeteer.launch({ executablePath, args: flags, protocolTimeout: 900_000 });
  }, 300_000);

  afterAll(async () => {
    await browser?.close();
    served?.server.close();
    rmSync(folder, { recursive: true, force: true });
  });

  beforeEach(async (ctx) => {
    if (!browser) return ctx.skip("no Chromium here");
    page = await browser.newPage();
    complaints = [];
    page.on("console", (message) => complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(String(error)));
    return () => page.close();
  });

  const state = () => page.waitForFunction("/good|bad|failed/.test(document.body.dataset.state)", { timeout: 300_000 });
  const text = (selector: string) => page.$eval(selector, (found) => found.textContent ?? "");

  it("the example computes real input within its bound, and draws it", async () => {
    await page.setViewport({ width: 900, height: 1000 });
    await page.goto(`${served.url}/example/`);
    await state();
    expect(await text("#state")).toBe("Within its bound of the stored result.");
    const facts = await text("#facts");
    expect(facts).toMatch(/prefill-/);
    expect(facts).toMatch(/JavaScript, float64\d+ ms/);
    expect(Number(/stored result([\d.e-]+)/.exec(facts)![1])).toBeGreaterThan(0);
    const drawn = (await page.$eval("#map", (canvas) => {
      const map = canvas as unknown as {
        width: number;
        height: number;
        getContext(kind: "2d"): {
          getImageData(x: number, y: number, w: number, h: number): { data: Uint8ClampedArray };
        };
      };
      const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
      const at = (i: number, j: number) => data[4 * (i * map.width + j)]!;
      return { width: map.width, first: at(0, 0), hidden: at(0, 100), colours: new Set(data).size };
    })) as { width: number; first: number; hidden: number; colours: number };
    expect(drawn).toMatchObject({ width: 512, first: 30, hidden: 255 });
    expect(drawn.colours).toBeGreaterThan(50);
    mkdirSync(join(root, "out"), { recursive: true });
    await page.screenshot({ path: join(root, "out/browser-example.png"), fullPage: true });
    await page.select("#layer", "3");
    await page.evaluate("document.body.dataset.state = ''");
    await page.select("#head", "2");
    await state();
    expect(await text("#state")).toBe("Within its bound of the stored result.");
    expect(complaints.filter((one) => !/powerPreference|GPU stall/.test(one))).toEqual([]);
  });

  it("a page without WebGPU says so", async () => {
    await page.evaluateOnNewDocument("Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined })");
    await page.goto(`${served.url}/example/`);
    await state();
    expect(await text("#state")).toMatch(
      /can't be shown here. (backend-missing|device-unavailable): .*navigator\.gpu/s,
    );
  });

  it("a part of the conformance table", async () => {
    await page.goto(`${served.url}/example/`);
    const pattern = full ? "." : "^(dim/(33|64)$|heads/14-2$|length/(1|65)x|window/|paged/)";
    const report = (await page.evaluate(
      `import("/table/table.js").then(({ table }) => table(${JSON.stringify(pattern)}))`,
    )) as { failed: number; passed: number; declined: number; text: string };
    console.log(report.text);
    expect(report.failed, report.text).toBe(0);
    expect(report.passed).toBeGreaterThan(40);
  });
});
