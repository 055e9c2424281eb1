/** The report in a real browser. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { renderReport } from "../src/report/render.js";
import { imagined } from "./support.js";

const browsers = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = browsers.find((path) => path && existsSync(path));

const folder = mkdtempSync(join(tmpdir(), "tessera-report-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function saved(name: string, count: number): string {
  const backends = ["cuda", "hip", "cpu"];
  const files = Array.from({ length: count }, (_, i) => ({
    name: `${i}.json`,
    result: imagined(`Device ${i}`, backends[i % 3], 1 / (1 + i)),
  }));
  const path = join(folder, name);
  writeFileSync(path, renderReport(files));
  return pathToFileURL(path).href;
}

let browser: Browser | undefined;
beforeAll(async () => {
  if (executablePath === undefined) return;
  browser = await puppeteer.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}, 60_000);
afterAll(() => browser?.close());

let page: Page;
let complaints: string[];
let requests: string[];
beforeEach(async (ctx) => {
  if (!browser) return ctx.skip("no Chromium here");
  page = await browser.newPage();
  complaints = [];
  requests = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  return () => page.close();
});

async function open(url: string, width = 1280, scheme: "light" | "dark" = "light"): Promise<number> {
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  const start = performance.now();
  await page.goto(url, { waitUntil: "load" });
  return performance.now() - start;
}

const count = (selector: string) => page.$$eval(selector, (found) => found.length);

describe("the report in a browser", () => {
  it("draws, asks no network, and complains of nothing", async () => {
    const url = saved("three.html", 3);
    await open(url);
    expect(await count("figure.chart svg[role=img]")).toBeGreaterThanOrEqual(8);
    expect(await count("figure.chart svg path")).toBeGreaterThan(20);
    const labels = await page.$$eval("svg[role=img]", (all) => all.map((one) => one.getAttribute("aria-label") ?? ""));
    for (const label of labels) expect(label).toMatch(/\d/);
    expect(labels.join(" ")).not.toMatch(/undefined|NaN/);
    expect(await page.$eval("main", (main) => main.textContent)).not.toMatch(/undefined|NaN|\[object/);
    expect(complaints).toEqual([]);
    expect(requests.filter((one) => !one.startsWith("data:"))).toEqual([url]);
  });

  it("tells a mark's numbers to who points at it", async () => {
    await open(saved("three.html", 3));
    const dots = await page.$$("figure.chart svg [aria-label=dot] path");
    await dots[2]!.scrollIntoView();
    const box = (await dots[2]!.boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.waitForFunction(() =>
      [...document.querySelectorAll("[aria-label=tip]")].some((tip) => /TFLOP\/s/.test(tip.textContent ?? "")),
    );
    const tip = await page.$$eval("[aria-label=tip]", (all) => all.map((one) => one.textContent).join(""));
    expect(tip).toMatch(/Device \d/);
    expect(tip).toMatch(/prefill-x/);
    expect(complaints).toEqual([]);
  });

  it("shows the devices that are ticked, with the keyboard alone", async () => {
    await open(saved("three.html", 3));
    const rows = () =>
      page.$$eval("tr[data-device='0']", (all) => all.filter((row) => !(row as HTMLElement).hidden).length);
    const lines = () => count("[data-charts=prefill] figure:first-child [aria-label=line] path");
    expect([await rows(), await lines()]).toEqual([await count("tr[data-device='0']"), 3]);
    await page.focus("fieldset input");
    await page.keyboard.press("Space");
    expect([await rows(), await lines()]).toEqual([0, 2]);
    for (const _ of [1, 2]) {
      await page.keyboard.press("Tab");
      await page.keyboard.press("Space");
    }
    expect(await count("figure.chart")).toBe(0);
    await page.keyboard.press("Space");
    expect(await lines()).toBe(1);
    // The numbers behind a chart open with Enter.
    await page.focus("summary");
    await page.keyboard.press("Enter");
    expect(await page.$eval("details", (one) => one.open)).toBe(true);
    expect(complaints).toEqual([]);
  });

  it("is dark where dark is wanted, and light where it is chosen", async () => {
    await open(saved("three.html", 3), 1280, "dark");
    const background = () => page.$eval("body", (body) => getComputedStyle(body).backgroundColor);
    expect(await background()).toBe("rgb(20, 22, 26)");
    await page.select("#theme", "light");
    expect(await background()).toBe("rgb(255, 255, 255)");
    // Text stands out against what is behind it: WCAG AA.
    const contrast = () =>
      page.evaluate(() => {
        const channels = (color: string) =>
          color
            .match(/[\d.]+/g)!
            .slice(0, 3)
            .map(Number);
        const luminance = (color: string) => {
          const [r, g, b] = channels(color).map((c) =>
            c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
          );
          return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
        };
        const behind = getComputedStyle(document.body).backgroundColor;
        return [...document.querySelectorAll("h1, p, a, th, td, summary, dt, dd")].reduce((least, element) => {
          const [a, b] = [luminance(getComputedStyle(element).color), luminance(behind)];
          return Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
        }, 21);
      });
    expect(await contrast()).toBeGreaterThanOrEqual(4.5);
    await page.select("#theme", "dark");
    expect(await contrast()).toBeGreaterThanOrEqual(4.5);
  });

  it("fits a phone", async () => {
    await open(saved("three.html", 3), 360);
    const [scroll, width] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    expect(scroll).toBeLessThanOrEqual(width!);
    const widest = await page.$$eval("figure.chart svg", (all) =>
      Math.max(...all.map((one) => one.getBoundingClientRect().right)),
    );
    expect(widest).toBeLessThanOrEqual(360);
    // Turned, the charts follow.
    await page.setViewport({ width: 800, height: 360 });
    await page.waitForFunction(() => document.querySelector("figure.chart svg")!.getBoundingClientRect().width > 330);
  });

  it("can be read by a screen reader", async () => {
    await open(saved("three.html", 3));
    const tree = await page.accessibility.snapshot({ interestingOnly: true });
    const roles: string[] = [];
    const unnamed: string[] = [];
    const visit = (node: NonNullable<typeof tree>) => {
      roles.push(node.role);
      if (["checkbox", "combobox", "button", "link", "image", "region"].includes(node.role) && !node.name)
        unnamed.push(node.role);
      for (const child of node.children ?? []) visit(child);
    };
    visit(tree!);
    expect(unnamed).toEqual([]);
    expect(roles).toEqual(expect.arrayContaining(["checkbox", "combobox", "button", "image", "heading", "region"]));
    expect(await page.$eval("html", (html) => html.lang)).toBe("en");
    const levels = await page.$$eval("h1, h2, h3", (all) => all.map((one) => Number(one.tagName[1])));
    expect(levels[0]).toBe(1);
    for (let i = 1; i < levels.length; i++) expect(levels[i]! - levels[i - 1]!).toBeLessThanOrEqual(1);
  });

  it("gives its numbers as CSV", async () => {
    await open(saved("three.html", 3));
    const session = await page.createCDPSession();
    await session.send("Page.setDownloadBehavior", { behavior: "allow", downloadPath: folder });
    await page.click("#csv");
    const path = join(folder, "tessera.csv");
    await expect.poll(() => existsSync(path), { timeout: 10_000 }).toBe(true);
    await expect.poll(() => readFileSync(path, "utf8").split("\r\n").length).toBeGreaterThan(60);
  });

  it("of ten files opens in less than a second", async () => {
    const url = saved("ten.html", 10);
    const times = [];
    for (let i = 0; i < 5; i++) times.push(await open(url));
    console.log(`ten files: opened in ${times.map((ms) => ms.toFixed(0)).join(", ")} ms`);
    expect(Math.min(...times)).toBeLessThan(1000);
    expect(complaints).toEqual([]);
  });
});
