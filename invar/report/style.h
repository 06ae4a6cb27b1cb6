// The look of HTML reports. Colours stand once, as variables, for light and for dark; every text has at least the
// contrast of 4.5 to 1 against what is behind it, and lines also differ in width and dashes, so that colour is never
// all there is, and one does not hide another that runs below it.
#pragma once

#include <string_view>

namespace invar {

inline constexpr std::string_view kReportStyle = R"(
:root {
  --back: #ffffff; --card: #f7f8fa; --text: #1c2129; --soft: #59636e; --rule: #d8dde3; --grid: #e6e9ed;
  --pass: #1a7f37; --marginal: #8a5a00; --fail: #c0202b; --within: #dff3e4;
  --c0: #5b6b80; --c1: #c2410c; --c2: #1d5fd0; --c3: #1a7f37; --c4: #8b3fc7; --c5: #0e7490;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #12161c; --card: #1a2028; --text: #e6eaf0; --soft: #9aa6b4; --rule: #313a46; --grid: #27303a;
    --pass: #4ac26b; --marginal: #e3b341; --fail: #ff7b72; --within: #17352080;
    --c0: #9fb0c6; --c1: #ff9d5c; --c2: #6cb0ff; --c3: #56d47a; --c4: #d2a0ff; --c5: #5cd3e6;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 36px 0 12px; padding-top: 20px; border-top: 1px solid var(--rule); }
h3 { font-size: 15px; margin: 14px 0 8px; color: var(--soft); }
.verdict { font-size: 16px; margin: 0 0 16px; overflow-wrap: anywhere; }
.badge { display: inline-block; padding: 1px 10px; border-radius: 999px; border: 1.5px solid; font-weight: 650; font-size: 13px; vertical-align: 1px; }
.pass { color: var(--pass); } .marginal { color: var(--marginal); } .fail, .invalid { color: var(--fail); }
dl { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 0; font-size: 14px; }
dl div { display: flex; gap: 8px; } dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; } thead th { color: var(--soft); font-weight: 600; }
td.good { color: var(--pass); font-weight: 600; } td.poor { color: var(--fail); font-weight: 600; }
.wraps th, .wraps td { white-space: normal; overflow-wrap: break-word; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 8px 36px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 18px; }
figure { margin: 0; padding: 12px 14px 8px; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
figcaption { font-weight: 600; font-size: 14px; margin-bottom: 6px; }
figure img { display: block; max-width: 100%; height: auto; } .plots + .plots { margin-top: 18px; }
.intervals { margin-top: 18px; }
.intervals figcaption { font-weight: 400; color: var(--soft); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; font-family: inherit; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.limit { stroke: var(--fail); stroke-dasharray: 5 4; } .within { fill: var(--within); }
.line { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
.line.line0 { stroke-width: 4; opacity: 0.6; }
.line.line2 { stroke-dasharray: 7 4; } .line.line3 { stroke-dasharray: 2 3; } .line.line4 { stroke-dasharray: 10 3 2 3; } .line.line5 { stroke-dasharray: 4 6; }
.thin { stroke-width: 2; } .thick { stroke-width: 7; stroke-linecap: round; opacity: 0.75; }
.line0 { stroke: var(--c0); } .line1 { stroke: var(--c1); } .line2 { stroke: var(--c2); } .line3 { stroke: var(--c3); } .line4 { stroke: var(--c4); } .line5 { stroke: var(--c5); }
.mark0, .fill0 { fill: var(--c0); background: var(--c0); } .mark1, .fill1 { fill: var(--c1); background: var(--c1); } .mark2, .fill2 { fill: var(--c2); background: var(--c2); }
.mark3, .fill3 { fill: var(--c3); background: var(--c3); } .mark4, .fill4 { fill: var(--c4); background: var(--c4); } .mark5, .fill5 { fill: var(--c5); background: var(--c5); }
circle.mark0 { opacity: 0.6; }
.bad { stroke: var(--fail); stroke-width: 2; fill: none; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 12px; font-size: 14px; }
.swatch { display: inline-block; width: 18px; height: 4px; border-radius: 2px; margin-right: 7px; vertical-align: middle; }
.swatch.fill0 { height: 7px; opacity: 0.75; }
.none { color: var(--soft); margin: 8px 0; }
.checklist { list-style: none; margin: 0; padding: 0; font-size: 14px; }
.checklist li { display: flex; gap: 10px; padding: 5px 0; border-bottom: 1px solid var(--rule); }
.checklist small { display: block; color: var(--soft); font-size: 12.5px; overflow-wrap: anywhere; }
.box { flex: none; width: 20px; height: 20px; margin-top: 2px; border: 1.5px solid var(--soft); border-radius: 4px; text-align: center; line-height: 17px; font-weight: 700; font-size: 13px; color: var(--soft); }
.done .box { color: var(--pass); border-color: var(--pass); } .open .box { color: var(--fail); border-color: var(--fail); }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px; overflow-x: auto; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
summary { cursor: pointer; color: var(--soft); }
@media print { main { max-width: none; } figure, li, tr { break-inside: avoid; } }
)";

}  // namespace invar
