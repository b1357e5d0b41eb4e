"""The style sheet of a page: two palettes, and the rules that use them.

The colours of units are by Okabe and Ito and can be distinguished with any common colour blindness;
letters, patterns and strokes give the same information without colour.
"""

from linkwise.views.render.page.chart import CHART_STYLE
from linkwise.views.render.page.fleet_style import FLEET_STYLE

UNIT_COLOURS = ("#e69f00", "#56b4e9", "#cc79a7", "#f0e442", "#d55e00", "#009e73")
"""Source: M. Okabe and K. Ito, Color Universal Design, 2008; its blue is kept for links."""

ON_UNIT = "#101418"
"""Text on a unit's colour."""

LIGHT = {
    "page": "#f6f7f8",
    "surface": "#ffffff",
    "line": "#dfe3e7",
    "edge": "#7b8590",
    "ink": "#171b20",
    "quiet": "#57606a",
    "good": "#0b6b4f",
    "bad": "#a63a00",
    "focus": "#0b5fa5",
    "one": "#008060",
    "two": "#0072b2",
    "many": "#9c4f84",
    "hatch": "#858f9a",
}
DARK = {
    "page": "#0f1216",
    "surface": "#171b21",
    "line": "#2b323a",
    "edge": "#7d8894",
    "ink": "#e8ebee",
    "quiet": "#a3adb8",
    "good": "#4cc9a0",
    "bad": "#f08a4b",
    "focus": "#7cc0f5",
    "one": "#2fb88e",
    "two": "#56b4e9",
    "many": "#d794b8",
    "hatch": "#6f7a86",
}


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in palette.items())


_UNITS = "".join(f".u{place}{{--unit:{colour}}}" for place, colour in enumerate(UNIT_COLOURS))

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;color-scheme:light dark}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:40px 24px 72px}
h1,h2,h3,p,ul,dl,dd,table{margin:0;padding:0}
h1{font-size:28px;line-height:1.25;font-weight:650;letter-spacing:-.015em;margin:4px 0 6px}
h2{font-size:18px;font-weight:650;margin:44px 0 14px}
h3{font-size:16px;font-weight:650;overflow-wrap:anywhere}
ul{list-style:none}
a{color:inherit}
bdi,td,.mono{overflow-wrap:anywhere}
.quiet{color:var(--quiet)}.ink{color:var(--ink)}
.small{font-size:13px}
.piece{display:inline-block;margin-right:10px}
.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12.5px}
.good{color:var(--good)}.bad{color:var(--bad)}
.card{background:var(--surface);border:1px solid var(--line);border-radius:12px;padding:20px 22px;
margin:0 0 14px}
.head{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline}
.head .status{margin-left:auto;font-weight:600;white-space:nowrap}
.halves{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:20px 40px;
margin-top:16px}
.halves>*{min-width:0}
.chip{display:inline-block;min-width:26px;padding:0 6px;border-radius:6px;border:1px solid
var(--ink);background:var(--unit);color:var(--on);font-size:13px;line-height:20px;font-weight:700;
text-align:center;white-space:nowrap;font-variant-numeric:tabular-nums}
.rows>li{display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline;padding:7px 0;
border-top:1px solid var(--line)}
.rows>li:first-child{border-top:0;padding-top:0}
.rows>li:last-child{padding-bottom:0}
.rows .head{flex:1 0 100%}
.rows .where{margin-left:auto;text-align:right}
.rows .reason{flex-basis:100%}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-top:1px solid var(--line)}
thead th{border-top:0;color:var(--quiet);font-weight:500;font-size:12.5px}
tbody th{font-weight:500;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
td li+li{margin-top:2px}
.bars dt{display:flex;justify-content:space-between;gap:12px;font-size:13.5px;margin-top:10px}
.bars dt b{font-variant-numeric:tabular-nums;font-weight:650;white-space:nowrap}
.bars dd{height:12px;border-radius:3px;background:var(--line);margin-top:4px;overflow:hidden}
.bars i{display:block;height:100%;border-radius:3px;border:1px solid var(--ink)}
.bars .chosen{background:var(--ink)}
.bars .best{background:var(--surface)}
.bars .order{background:repeating-linear-gradient(135deg,var(--ink) 0 1px,var(--surface) 1px 5px)}
.gain{margin-top:14px}
.gain b{font-size:20px;font-weight:650}
.why{margin-top:14px}
.why p+p{margin-top:4px}
.reason{margin-top:10px}
.finding{padding:10px 0 0}
.finding p+p{margin-top:2px}
details>summary{cursor:pointer;border-radius:6px}
details.more{margin-top:10px}
.unit details.row>summary .head{flex:1 1 0;min-width:0}
.unit details.row>.inside>.halves{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}
.unit .card{margin-bottom:8px}.fold>div,.fold+.card{margin-top:10px}
details.more>summary{color:var(--quiet);font-size:13.5px}
:focus-visible{outline:3px solid var(--focus);outline-offset:3px}
details.row{padding:0}
details.row>summary{padding:14px 22px;display:flex;flex-wrap:wrap;gap:4px 14px;
align-items:center;list-style:none;border-radius:12px}
details.row>summary::-webkit-details-marker{display:none}
details.row>summary::before{content:"";width:7px;height:7px;margin-right:-4px;
border:solid var(--quiet);border-width:0 2px 2px 0;transform:rotate(-45deg)}
details.row[open]>summary::before{transform:rotate(45deg)}
details.row .strip{margin-left:auto;display:flex;gap:3px}
.strip i{min-width:19px;height:19px;border-radius:4px;border:1px solid var(--edge);padding:0 2px;
font:700 11px/17px system-ui,sans-serif;text-align:center;color:var(--ink)}
.strip .placed{background:var(--unit);border-color:var(--ink);color:var(--on)}
.strip .held{background:
repeating-linear-gradient(135deg,var(--hatch) 0 1.5px,transparent 1.5px 5px)}
.strip .unhealthy,.strip .cordoned{border-style:dashed;border-color:var(--bad)}
.inside{padding:4px 22px 20px}
.inside .halves{grid-template-columns:minmax(0,416px) minmax(0,1fr);align-items:start;margin:0}
.legend{display:flex;flex-wrap:wrap;gap:8px 22px;font-size:13px;color:var(--quiet);margin:0 0 16px}
.legend li{display:flex;align-items:center;gap:8px}
.legend svg{flex:none}
.note{margin-top:8px}
svg{display:block;max-width:100%;height:auto}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
fill:var(--ink);text-anchor:middle}
.tile{fill:var(--surface);stroke:var(--edge);stroke-width:1.25}
.tile.placed{fill:var(--unit);stroke:var(--ink);stroke-width:1.5}
.tile.held{fill:url(#hatch)}
.tile.faulty{stroke:var(--bad);stroke-width:2;stroke-dasharray:5 3}
text.index{font-size:12.5px}
text.word{font-size:12px;fill:var(--quiet)}
text.tag{font-size:17px;font-weight:700}
.on text,text.on{fill:var(--on)}
text.clear{paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
text.frame{font-size:12px;fill:var(--quiet)}text.frame.clear{stroke-width:8px}
text.count{font-size:12px;font-weight:600}
.frame{fill:none;stroke:var(--edge);stroke-width:1}
.frame.d1{stroke-dasharray:6 3}.frame.d2{stroke-dasharray:2 3}
.wire{fill:none;stroke-linejoin:round}
.wire.one{stroke:var(--one);stroke-width:2}
.wire.two{stroke:var(--two);stroke-width:6}
.wire.many{stroke:var(--many);stroke-width:4}
.wire.gap{stroke:var(--surface);stroke-width:2}
.wire.lit{stroke:var(--unit);stroke-width:15;stroke-linecap:round;opacity:.55}
rect.nic{fill:var(--page);stroke:var(--edge)}
text.nic{font-size:11.5px;font-weight:600}text.nic.near{font-weight:400;fill:var(--quiet)}
.wire.nic{stroke:var(--edge);stroke-width:1.5}
.switch{fill:var(--surface);stroke:var(--many);stroke-width:2}
.slot{fill:var(--surface);stroke:var(--edge)}
.part{stroke:var(--ink);stroke-width:.75}
.part.placed{fill:var(--unit)}
.part.held{fill:url(#hatch)}
.away{position:absolute;width:0;height:0;overflow:hidden}
.sr{position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
@media (max-width:820px){.halves,.inside .halves{grid-template-columns:minmax(0,1fr)}
.unit details.row>.inside>.halves{grid-template-columns:minmax(0,1fr)}}
@media (max-width:520px){main{padding:24px 14px 48px}h1{font-size:23px}
.card{padding:16px}details.row{padding:0}details.row>summary{padding:12px 16px}
.inside{padding:4px 12px 16px}details.row .strip{margin-left:0;flex-basis:100%}
.head .small{order:1;flex-basis:100%}.rows .where{margin-left:0;text-align:left;flex-basis:100%}}
@media print{body{background:none}.card{break-inside:avoid}}
@media (forced-colors:active){.chip,.strip i,.bars i,svg{forced-color-adjust:none}}
"""

STYLE = (
    f":root{{--on:{ON_UNIT};{_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    f"{_UNITS}{_RULES}{FLEET_STYLE}{CHART_STYLE}"
)
