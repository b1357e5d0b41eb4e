"""The style sheet of the map of all nodes."""

HEATS_LIGHT = {
    "h0": "#eef3f8",
    "h1": "#c9dcef",
    "h2": "#93bde0",
    "h3": "#3a7ab3",
    "h4": "#1f5c94",
    "h5": "#0c3866",
    "f0": "#e6f4ec",
    "f1": "#fbe0b5",
    "f2": "#eeaa4e",
    "f3": "#a04f00",
    "full": "#c4cad1",
}
HEATS_DARK = {
    "h0": "#1d242c",
    "h1": "#1f3a55",
    "h2": "#285681",
    "h3": "#3a76ad",
    "h4": "#85b8e3",
    "h5": "#cfe5f9",
    "f0": "#16352a",
    "f1": "#55390f",
    "f2": "#9a5a0a",
    "f3": "#f5b65c",
    "full": "#4a535d",
}
ON_LIGHT = {
    style: "#ffffff" if style in {"h3", "h4", "h5", "f3"} else "#171b20" for style in HEATS_LIGHT
}
ON_DARK = {style: "#101418" if style in {"h4", "h5", "f3"} else "#ffffff" for style in HEATS_DARK}
"""Text on each."""


def _rules(heats: dict[str, str], texts: dict[str, str]) -> str:
    return "".join(
        f".{style}{{--heat:{colour};--on-heat:{texts[style]}}}" for style, colour in heats.items()
    )


_RULES = """
[hidden]{display:none!important}
.caption{margin:2px 0 20px}.caption p{overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:12px}
.fact{background:var(--surface);border:1px solid var(--line);border-radius:12px;padding:12px 16px}
.fact b{display:block;font-size:24px;line-height:1.25;font-weight:650;
font-variant-numeric:tabular-nums}
.fact span{font-size:13px;color:var(--quiet)}
.controls{display:flex;flex-wrap:wrap;gap:10px 12px;align-items:end;margin:0 0 12px}
.controls label{display:block;font-size:12.5px;color:var(--quiet);flex:0 1 150px;min-width:0}
.controls label:first-child{flex:1 1 220px}
.controls input,.controls select{display:block;width:100%;min-width:0;height:38px;margin-top:3px;
padding:0 10px;font:inherit;color:var(--ink);background:var(--surface);
border:1px solid var(--edge);border-radius:8px}
.keys{display:flex;flex-wrap:wrap;gap:6px 22px;align-items:center;margin:0 0 6px;font-size:13px;
color:var(--quiet)}
.scale,.signs{display:flex;flex-wrap:wrap;gap:4px 16px}
.scale li,.signs span{display:flex;align-items:center;gap:6px}
.scale i{width:16px;height:16px;border-radius:4px}
#count{margin-left:auto}
.group{margin:18px 0 0}
.group-head{display:flex;flex-wrap:wrap;gap:0 12px;align-items:baseline;margin:0 0 8px}
.grid{display:grid;gap:6px;grid-template-columns:repeat(auto-fill,minmax(190px,1fr))}
.grid.middle{gap:4px;grid-template-columns:repeat(auto-fill,38px)}
.grid.tiny{gap:2px;grid-template-columns:repeat(auto-fill,12px)}
.n{display:block;margin:0;padding:0;border:1px solid var(--edge);border-radius:6px;font:inherit;
text-align:left;min-width:0;cursor:pointer;background:var(--heat);color:var(--on-heat)}
i.n{display:inline-block;flex:none;cursor:auto}
.big .n{display:flex;flex-direction:column;padding:10px 12px;
background:var(--surface);color:var(--ink);border-left:9px solid var(--heat)}
.big .name{display:block;font-weight:600;font-size:14px;overflow-wrap:anywhere}
.big .left{display:block;font-size:12.5px;margin-top:6px}
.middle .n{height:38px;text-align:center;font-weight:600;font-size:14px;
font-variant-numeric:tabular-nums}
.tiny .n{height:12px;border-radius:2px;border-width:0;box-shadow:inset 0 0 0 1px var(--seam)}
.n.faulty{outline:2px solid var(--bad);outline-offset:-2px}
.n:focus-visible{outline:3px solid var(--focus);outline-offset:1px}
.n:hover{box-shadow:0 0 0 2px var(--ink)}
.cells{display:flex;flex-wrap:wrap;gap:3px;margin-top:7px}
.g{display:inline-flex;align-items:end;width:14px;height:14px;border-radius:3px;flex:none;
border:1px solid var(--edge);background:var(--surface);overflow:hidden}
.g b{display:block;width:100%;background:var(--taken)}
.s1,.s3{background:var(--taken)}
.s2{background:#e69f00;border-color:var(--ink)}
.s4{background:repeating-linear-gradient(135deg,var(--hatch) 0 1.5px,transparent 1.5px 4px)}
.s5,.s6{border:2px dashed var(--bad)}
dialog{width:min(960px,calc(100vw - 24px));max-height:calc(100vh - 32px);padding:20px 22px;
color:var(--ink);background:var(--surface);border:1px solid var(--edge);border-radius:14px}
dialog::backdrop{background:#0009}
dialog .head{justify-content:space-between;flex-wrap:nowrap}
dialog .halves{grid-template-columns:minmax(0,416px) minmax(0,1fr);align-items:start}
dialog p+p,dialog p+table{margin-top:8px}
.close{flex:none;font:inherit;font-size:14px;padding:5px 14px;border-radius:8px;cursor:pointer;
color:var(--ink);background:var(--surface);border:1px solid var(--edge)}
.link{font:inherit;font-size:13px;padding:0;border:0;background:none;color:var(--focus);
cursor:pointer;text-decoration:underline}
.usage td:last-child{text-align:right}
.usage tbody th{white-space:normal}
.parts{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:0 28px}
.bars.card dt:first-child{margin-top:0}
.parts .quiet{margin:-8px 0 12px}
@media (max-width:820px){.parts,dialog .halves{grid-template-columns:minmax(0,1fr)}
.facts{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media (max-width:520px){.controls label{flex:1 1 40%}.controls label:first-child{flex:1 1 100%}
.grid{grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}
.grid.tiny{gap:1px;grid-template-columns:repeat(auto-fill,11px)}
.tiny .n{height:11px}#count{margin-left:0}.usage th,.usage td{padding-right:8px}
dialog{padding:16px 14px}}
@media (forced-colors:active){.n,.g{forced-color-adjust:none}}
"""

FLEET_STYLE = (
    f":root{{--taken:#3a5f85;--seam:#0002}}{_rules(HEATS_LIGHT, ON_LIGHT)}"
    "@media (prefers-color-scheme:dark){:root{--taken:#7fb0dd;--seam:#fff2}"
    f"{_rules(HEATS_DARK, ON_DARK)}}}{_RULES}"
)
