/** What makes the report's page move: charts, the filter by device, dark and light, CSV. */
import { csvOf } from "../report/csv.js";
import type { ReportModel } from "../report/model.js";
import { chartsOf, type View } from "./charts.js";

const model = JSON.parse(document.getElementById("data")!.textContent!) as ReportModel;

// Distinct also for those who tell few colours apart; used for devices and nothing else.
const palette = [
  "#4e79c7",
  "#e08a1e",
  "#3f9f6b",
  "#c8557b",
  "#8c6bb8",
  "#2a9db5",
  "#a9792b",
  "#d0503c",
  "#7a8b1f",
  "#777c88",
];
const color = (device: number) => palette[device % palette.length]!;
const shown = new Set(model.devices.map(({ id }) => id));
const view: View = { model, shown, color };

function make<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: { readonly [name: string]: string } = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function draw(): void {
  for (const place of document.querySelectorAll<HTMLElement>("[data-charts]")) {
    const figures = chartsOf(place.dataset.charts!, view).map((chart) => {
      const figure = make("figure", { class: "chart" }, make("figcaption", {}, chart.title));
      place.append(figure);
      return { chart, figure };
    });
    place.replaceChildren(...figures.map(({ figure }) => figure));
    if (figures.length === 0)
      place.replaceChildren(make("p", { class: "faint" }, "Nothing to draw: the numbers are in the table."));
    for (const { chart, figure } of figures) {
      const drawn = chart.draw(Math.max(260, figure.clientWidth - 26));
      const svg = drawn instanceof SVGSVGElement ? drawn : drawn.querySelector("svg")!;
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", chart.summary);
      figure.append(drawn);
    }
  }
}

function filterRows(): void {
  for (const row of document.querySelectorAll<HTMLElement>("tr[data-device]"))
    row.hidden = !shown.has(Number(row.dataset.device));
}

function deviceFilter(): HTMLElement {
  const legend = make("legend", {}, "Devices");
  const boxes = model.devices.map(({ id, label }) => {
    const box = make("input", { type: "checkbox", value: `${id}` });
    box.checked = true;
    box.addEventListener("change", () => {
      if (box.checked) shown.add(id);
      else shown.delete(id);
      draw();
      filterRows();
    });
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = color(id);
    return make("label", {}, box, swatch, label);
  });
  return make("fieldset", { class: "bar" }, legend, ...boxes);
}

function themeChoice(): HTMLElement {
  const choice = make("select", { id: "theme" });
  for (const name of ["system", "light", "dark"]) choice.append(make("option", { value: name }, name));
  choice.addEventListener("change", () => {
    if (choice.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice.value;
  });
  return make("label", {}, "Colours", choice);
}

function csvButton(): HTMLElement {
  const button = make("button", { type: "button", id: "csv" }, "Save as CSV");
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([csvOf(model)], { type: "text/csv" }));
    make("a", { href: url, download: "tessera.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
  return button;
}

document.getElementById("controls")!.append(deviceFilter(), themeChoice(), csvButton());
draw();
let width = document.body.clientWidth;
new ResizeObserver(() => {
  // Height changes whenever something opens; charts only care for the width.
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  draw();
}).observe(document.body);
