#include "report/html/html_parts.h"

namespace kvlift::html {

std::string_view StyleSheet() {
  return R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f6f7f9; --line: #d5d9df; --text: #1c2126; --faint: #5a6470;
  --link: #0b57d0; --good: #13703a; --good-bg: #dff4e6; --bad: #b3261e; --bad-bg: #fde5e3;
  --warn: #8a5300; --warn-bg: #fdeecb; --kept: #eceff3; --kept-line: #8b95a1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --panel: #1d2126; --line: #3a424b; --text: #e4e8ec; --faint: #a0aab5;
    --link: #8ab4f8; --good: #7bd89c; --good-bg: #163524; --bad: #ff9d94; --bad-bg: #431a18;
    --warn: #f3c66b; --warn-bg: #3d2e0d; --kept: #2a3037; --kept-line: #77828e;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body {
  margin: 0 auto; max-width: 96rem; padding: 1.5rem 1.25rem 4rem; background: var(--page);
  color: var(--text); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
     border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .4rem 0; max-width: 48rem; }
a { color: var(--link); }
code, td, .mono { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, monospace; }
code, td { font-size: .85em; overflow-wrap: break-word; }
code { overflow-wrap: anywhere; }
nav { margin: 1rem 0 0; display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .9rem; }
.verdict { border: 1px solid var(--line); border-left-width: 6px; border-radius: 6px;
           background: var(--panel); padding: .9rem 1.1rem; }
.verdict b { font-size: 1.15rem; }
.good { border-left-color: var(--good); } .good b { color: var(--good); }
.bad { border-left-color: var(--bad); } .bad b { color: var(--bad); }
.warn { border-left-color: var(--warn); } .warn b { color: var(--warn); }
.faint, caption, figcaption { color: var(--faint); font-size: .9rem; }
ul, ol { margin: .4rem 0; padding-left: 1.4rem; max-width: 56rem; }
.scroll { overflow-x: auto; margin: .5rem 0 1.25rem; }
details { margin-top: -.75rem; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding-bottom: .35rem; }
th { text-align: left; font-weight: 600; font-size: .85rem; border-bottom: 2px solid var(--line);
     padding: .3rem .7rem .3rem 0; white-space: nowrap; }
td { border-bottom: 1px solid var(--line); padding: .3rem .7rem .3rem 0; vertical-align: top;
     max-width: 24rem; }
td.yes, td.no, td.so { white-space: nowrap; }
td.yes { color: var(--good); } td.no { color: var(--bad); font-weight: 600; }
td.so { color: var(--warn); }
summary { cursor: pointer; color: var(--link); font-size: .9rem; }
figure { margin: .75rem 0 1.25rem; }
.pair { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1rem; }
.pair > figure { max-width: 100%; margin: 0; border: 1px solid var(--line); border-radius: 6px;
                 padding: .75rem; }
svg { display: block; max-width: 100%; height: auto; }
.draw svg { max-width: none; }
svg text { fill: var(--text); font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
svg .small { font-size: 10px; fill: var(--faint); }
svg .box { stroke-width: 1.25; fill: var(--kept); stroke: var(--kept-line); }
svg .removed { fill: var(--bad-bg); stroke: var(--bad); stroke-dasharray: 5 3; }
svg .added { fill: var(--good-bg); stroke: var(--good); stroke-width: 2; }
svg .changed { fill: var(--warn-bg); stroke: var(--warn); }
svg .value { fill: var(--page); }
svg .edge { fill: none; stroke: var(--kept-line); stroke-width: 1.2; }
svg .alias { fill: none; stroke: var(--link); stroke-width: 1.6; stroke-dasharray: 6 4; }
svg .tip { fill: var(--kept-line); }
svg .axis { stroke: var(--line); stroke-width: 1; }
svg .past { fill: var(--kept); stroke: var(--kept-line); }
svg .present { fill: var(--good-bg); stroke: var(--good); }
svg .write { stroke: var(--link); stroke-width: 2.5; }
svg .grow { fill: none; stroke: var(--bad); stroke-width: 2.25; stroke-dasharray: 7 3; }
svg .fixed { fill: none; stroke: var(--good); stroke-width: 2.25; }
.key span { display: inline-block; border: 1.5px solid var(--kept-line); background: var(--kept);
            border-radius: 3px; padding: 0 .45rem; margin: 0 .4rem .3rem 0; font-size: .8rem; }
.key .removed { background: var(--bad-bg); border-color: var(--bad); border-style: dashed; }
.key .added { background: var(--good-bg); border-color: var(--good); }
.key .changed { background: var(--warn-bg); border-color: var(--warn); }
.key .alias { background: none; border: 0; border-bottom: 2px dashed var(--link);
              border-radius: 0; }
@media (max-width: 30rem) {
  body { padding: 1rem .75rem 3rem; font-size: 14px; }
  .wide { min-width: 34rem; }
}
@media print {
  :root { --page: #fff; --panel: #f6f7f9; --line: #c4c9d0; --text: #000; --faint: #444;
          --link: #0b3d91; --good: #13703a; --good-bg: #dff4e6; --bad: #b3261e;
          --bad-bg: #fde5e3; --warn: #8a5300; --warn-bg: #fdeecb; --kept: #eceff3;
          --kept-line: #77828e; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav, details { display: none; }
  .scroll { overflow: visible; }
  .draw svg { max-width: 100%; max-height: 15cm; }
  .pair { display: block; }
  h2, h3 { break-after: avoid; }
  tr, figure, .verdict { break-inside: avoid; }
}
)css";
}

}  // namespace kvlift::html
