"""The style of the page: light and dark, desktop and phone (PM-37, PM-103)."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2127;--dim:#5c6670;--paper:#fff;--line:#d8dee4;--mark:#1f6feb;--shade:#1c212759}
@media(prefers-color-scheme:dark){
:root{--ink:#e6eaee;--dim:#9aa4ae;--paper:#14181c;--line:#333b43;--mark:#6ea8fe;--shade:#e6eaee66}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
body{margin:0 auto;max-width:76rem;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}h3{font-size:1rem;margin:1rem 0 0}
.dim,.none,caption{color:var(--dim)}caption{text-align:left}
.light{display:inline-block;padding:.1rem .7rem;border-radius:1rem;color:#fff;font-weight:600}
.red{background:#b42318}.amber{background:#9a6700}.green{background:#1a7f37}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.tiles div{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .8rem;color:var(--dim);font-size:13px}
.tiles b{display:block;font-size:1.5rem;line-height:1.2;color:var(--ink);font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
.wide{background:linear-gradient(90deg,var(--paper) 30%,transparent) left/3rem 100% no-repeat local,
linear-gradient(270deg,var(--paper) 30%,transparent) right/3rem 100% no-repeat local,
linear-gradient(90deg,var(--shade),transparent) left/1rem 100% no-repeat scroll,
linear-gradient(270deg,var(--shade),transparent) right/1rem 100% no-repeat scroll}
th,td{padding:.25rem .45rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{white-space:normal;overflow-wrap:normal;vertical-align:bottom;line-height:1.25;color:var(--dim);font-weight:600}
th:first-child,td:first-child{text-align:left;padding-left:0}td:first-child{white-space:normal;min-width:11rem}
.still :is(th,td):last-child,:is(.reasons,.members) :is(th,td){text-align:left}
.still td:last-child,.reasons td,.members td{white-space:normal;min-width:4.5rem}.reasons td:last-child{min-width:14rem}
.reasons td:first-child{min-width:11rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(16rem,1fr));gap:.5rem 1.5rem}
.defs{position:absolute}svg:not(.defs){width:100%;height:auto}svg text{font-size:10px;fill:var(--dim)}
svg polyline{fill:none;stroke:var(--mark);stroke-width:1.5;stroke-linejoin:round}svg .axis{stroke:var(--line)}
svg polyline.least{stroke-dasharray:5 3}svg .area{fill:var(--mark);opacity:.14}.stripe{fill:var(--dim);opacity:.4}
.mix td:nth-child(2){min-width:10rem;width:99%}.mix th:nth-child(2){text-align:left}.mix svg{height:.9rem;display:block}
.key{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 .6rem;border-radius:.2rem}
.key:first-child{margin-left:0}
.k0{fill:#2da44e;background:#2da44e}.k1{fill:#1f6feb;background:#1f6feb}.k2{fill:#cf222e;background:#cf222e}
svg .m0,svg .m1,svg .m2{stroke-width:1.5;stroke-dasharray:3 2}
.m0{stroke:#8250df;background:#8250df}.m1{stroke:#cf222e;background:#cf222e}.m2{stroke:#9a6700;background:#9a6700}
.k3{fill:#d4a72c;background:#d4a72c}.k4{fill:#8250df;background:#8250df}
"""
#: On a narrow screen the values of a row are below its first one, each with the name of its column.
NARROW: Final = """
thead{position:absolute;overflow:hidden;clip-path:inset(50%);height:1px}
table,tbody{display:block}tr{display:grid;gap:.15rem .6rem;padding:.45rem 0;border-bottom:1px solid var(--line)}
tr{grid-template-columns:repeat(auto-fill,minmax(6.4rem,1fr))}
td,td:first-child,.mix td:nth-child(2){display:block;border:0;padding:0;text-align:left;white-space:normal}
td,td:first-child,.mix td:nth-child(2),.reasons td:is(:first-child,:last-child){min-width:0;width:auto}
td:first-child,.mix td:nth-child(2),:is(.still,.reasons,.members) td:last-child{grid-column:1/-1}
td:first-child{font-weight:600}td::before{display:block;color:var(--dim);font-size:11px;line-height:1.2}
"""
