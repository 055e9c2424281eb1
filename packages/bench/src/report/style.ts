/** The page's looks: dark and light, wide and narrow, printed. */
export const style = `
:root { color-scheme: light dark;
  --page: light-dark(#ffffff, #14161a); --card: light-dark(#f5f6f8, #1d2026); --ink: light-dark(#1b1e24, #e8eaee);
  --faint: light-dark(#5b6270, #a3abb9); --line: light-dark(#d8dce3, #363b45); --accent: light-dark(#0b5cad, #7ab8ff);
  --good: light-dark(#1a6b34, #7fd99a); --bad: light-dark(#b3261e, #ff9a92); }
:root[data-theme="light"] { color-scheme: light; }
:root[data-theme="dark"] { color-scheme: dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(0.75rem, 3vw, 2.5rem) 4rem; max-width: 84rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0.5rem 0 0; line-height: 1.2; }
h2 { font-size: 1.25rem; scroll-margin-top: 4rem; margin: 2.5rem 0 0.25rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 0; }
p, li { max-width: 48rem; } .faint, caption { color: var(--faint); }
a { color: var(--accent); }
.skip { position: absolute; left: -999rem; } .skip:focus { position: static; }
.bar { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; }
.controls { position: sticky; top: 0; z-index: 2; background: var(--page); border-bottom: 1px solid var(--line); padding: 0.5rem 0; }
fieldset { border: 0; margin: 0; padding: 0; } legend { float: left; padding: 0 0.25rem 0 0; color: var(--faint); }
label { display: inline-flex; gap: 0.4rem; align-items: center; min-height: 2rem; }
input, select, button { font: inherit; color: inherit; accent-color: var(--accent); }
select, button { background: var(--card); border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.25rem 0.6rem; min-height: 2.25rem; max-width: 100%; }
button { cursor: pointer; } :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.swatch { width: 0.9rem; height: 0.9rem; border-radius: 50%; flex: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 1rem; margin: 0.75rem 0; }
figure.chart { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 0.6rem; padding: 0.75rem; min-width: 0; }
figure.chart > figcaption { font-weight: 600; margin-bottom: 0.25rem; }
figure.chart svg { display: block; max-width: 100%; height: auto; overflow: visible; background: none; --plot-background: var(--card); font-size: 12px; }
details { margin: 0.5rem 0; } summary { cursor: pointer; color: var(--accent); min-height: 2rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 0.6rem; margin: 0.5rem 0; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; padding: 0.5rem 0.75rem; }
th, td { padding: 0.3rem 0.75rem; text-align: left; white-space: nowrap; border-top: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--faint); } .number { text-align: right; }
tbody th { position: sticky; left: 0; background: var(--page); max-width: 60vw; overflow: hidden; text-overflow: ellipsis; }
tr[hidden] { display: none; } .ok { color: var(--good); } .wrong { color: var(--bad); font-weight: 700; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; font-size: 0.875rem; } dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.notice { border-left: 4px solid var(--bad); padding: 0.25rem 0.75rem; background: var(--card); }
@media (max-width: 40rem) { .controls { position: static; } tbody th { max-width: 50vw; } dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; } }
@media print { .controls, .skip { display: none; } figure.chart { break-inside: avoid; } }
`;
