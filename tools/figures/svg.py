# SPDX-License-Identifier: Apache-2.0
"""Pictures as SVG, without any library: they have their own background, and colors for light and dark."""
from html import escape

# The classes that pictures use: what they set, and their color on light and on dark backgrounds.
CLASSES = {
    "paper": ("fill", "#ffffff", "#0d1117"),
    "ink": ("fill", "#1f2328", "#e6edf3"),
    "soft": ("fill", "#59636e", "#9198a1"),
    "grid": ("stroke", "#d8dee4", "#30363d"),
    "axis": ("stroke", "#59636e", "#9198a1"),
    "panel": ("fill", "#eef1f4", "#21262d"),
}
SERIES = {  # fills and strokes: f-NAME and s-NAME
    "blue": ("#1f6feb", "#58a6ff"),
    "red": ("#cf222e", "#ff7b72"),
    "orange": ("#bc6c00", "#e3b341"),
    "purple": ("#8250df", "#bc8cff"),
    "gray": ("#6e7781", "#8b949e"),
    "green": ("#1a7f37", "#56d364"),
}


def style():
    light, dark = [], []
    for name, (what, on_light, on_dark) in CLASSES.items():
        light.append(f".{name}{{{what}:{on_light}}}")
        dark.append(f".{name}{{{what}:{on_dark}}}")
    for name, (on_light, on_dark) in SERIES.items():
        light.append(f".f-{name}{{fill:{on_light}}}.s-{name}{{stroke:{on_light}}}")
        dark.append(f".f-{name}{{fill:{on_dark}}}.s-{name}{{stroke:{on_dark}}}")
    return ("".join(light) + ".middle{text-anchor:middle}.end{text-anchor:end}.bold{font-weight:bold}"
            "polyline,path{fill:none}@media (prefers-color-scheme:dark){" + "".join(dark) + "}")


class Picture:
    """Elements in a coordinate system of width x height, with (0, 0) at the top left."""

    def __init__(self, width, height, description):
        self.width, self.height, self.description = width, height, description
        self.parts = []

    def text(self, x, y, text, classes="ink", size=12):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{classes}" font-size="{size}">{escape(str(text))}</text>')

    def line(self, x1, y1, x2, y2, classes="grid", width=1, dash="none", arrow=False):
        end = ' marker-end="url(#arrow)"' if arrow else ""
        dashes = "" if dash == "none" else f' stroke-dasharray="{dash}"'
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{classes}" '
                          f'stroke-width="{width}"{dashes}{end}/>')

    def rect(self, x, y, width, height, classes, radius=0, opacity=1):
        faint = "" if opacity == 1 else f' opacity="{opacity}"'
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'rx="{radius}" class="{classes}"{faint}/>')

    def circle(self, x, y, radius, classes):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{classes}"/>')

    def polyline(self, points, classes, width=2, dash="none"):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = "" if dash == "none" else f' stroke-dasharray="{dash}"'
        self.parts.append(f'<polyline points="{path}" class="{classes}" stroke-width="{width}"{dashes}/>')

    def curve(self, path, classes="axis", width=1.5, arrow=True):
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self.parts.append(f'<path d="{path}" class="{classes}" stroke-width="{width}"{end}/>')

    def svg(self):
        arrow = ('<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                 'orient="auto"><polygon points="0,0 8,4 0,8" class="soft"/></marker></defs>')
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            'font-family="system-ui,Helvetica,Arial,sans-serif" role="img">',
            f"<title>{escape(self.description)}</title>", f"<style>{style()}</style>", arrow,
            f'<rect width="{self.width}" height="{self.height}" rx="8" class="paper"/>', *self.parts, "</svg>", ""])
