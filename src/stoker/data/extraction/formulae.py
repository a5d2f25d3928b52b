"""Formulae of web pages as TeX between dollar signs: MathML, MathJax, KaTeX, and images with TeX as their text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from selectolax.lexbor import LexborNode

Attributes = Mapping[str, str | None]
_SCRIPT = re.compile(r"math/(?:tex|latex|asciimath)", re.IGNORECASE)
_TEX_ENCODINGS = ("application/x-tex", "application/x-latex", "tex", "latex", "text/tex")
_IMAGE_WORDS = re.compile(r"(?:^|[^a-z])(?:math|tex|latex|mwe-math\S*|ee_img|formula|equation)(?:[^a-z]|$)")
_RENDERED = re.compile(r"(?:^|\s)(?:math ?jax(?:_preview|_display|_svg|_chtml)?|mjx-chtml|katex-html)(?:\s|$)")
_DISPLAY_STYLE = re.compile(r"^\{\s*\\displaystyle\s*(.*)\}$", re.DOTALL)
_OPERATORS = {
    "×": r"\times", "·": r"\cdot", "⋅": r"\cdot", "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx",
    "±": r"\pm", "∞": r"\infty", "∑": r"\sum", "∏": r"\prod", "∫": r"\int", "∂": r"\partial", "∇": r"\nabla",
    "∈": r"\in", "∉": r"\notin", "⊂": r"\subset", "⊆": r"\subseteq", "∪": r"\cup", "∩": r"\cap", "→": r"\to",
    "⇒": r"\Rightarrow", "⇔": r"\Leftrightarrow", "∀": r"\forall", "∃": r"\exists", "…": r"\ldots", "−": "-",
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\epsilon", "ζ": r"\zeta",
    "η": r"\eta", "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "ν": r"\nu", "ξ": r"\xi",
    "π": r"\pi", "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "φ": r"\phi", "χ": r"\chi", "ψ": r"\psi",
    "ω": r"\omega", "Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda", "Σ": r"\Sigma",
    "Φ": r"\Phi", "Ψ": r"\Psi", "Ω": r"\Omega", "ℝ": r"\mathbb{R}", "ℕ": r"\mathbb{N}", "ℤ": r"\mathbb{Z}",
    "\u2061": "", "\u2062": "", "\u2063": ",", "{": r"\{", "}": r"\}",
}  # fmt: skip
_ACCENTS = {
    "mover": {
        "^": r"\hat", "ˆ": r"\hat", "~": r"\tilde", "˜": r"\tilde", "¯": r"\overline", "‾": r"\overline",
        "ˉ": r"\overline", "_": r"\overline", r"\to": r"\vec", "⃗": r"\vec", "˙": r"\dot", ".": r"\dot",
        "¨": r"\ddot", "⏞": r"\overbrace", "ˇ": r"\check", "˘": r"\breve",
    },
    "munder": {"_": r"\underline", "¯": r"\underline", "‾": r"\underline", "⏟": r"\underbrace"},
}  # fmt: skip
"""Signs over and under a symbol, as they come out of `_OPERATORS`, and what TeX calls them."""
_MOST_NESTED = 60


def is_formula_script(attributes: Attributes) -> bool:
    """Whether a `<script>` holds TeX for MathJax."""
    return _SCRIPT.match(attributes.get("type") or "") is not None


def is_rendering(hint: str) -> bool:
    """Whether an element of this class is what a script drew of a formula that the page also holds as TeX."""
    return _RENDERED.search(hint) is not None


def delimited(tex: str, display: bool) -> str:
    """TeX between `$`, or `$$` where it stands by itself; nothing for nothing."""
    tex = tex.strip().strip("$").strip()
    if tex.startswith((r"\(", r"\[")) and tex.endswith((r"\)", r"\]")):
        tex = tex[2:-2].strip()
    styled = _DISPLAY_STYLE.match(tex)
    if styled is not None and _is_balanced(styled[1]):
        tex = styled[1].strip()
    if not tex:
        return ""
    return f"$${tex}$$" if display else f"${tex}$"


def of_script(node: LexborNode, attributes: Attributes) -> str:
    """The TeX of a MathJax script."""
    return delimited(node.text(deep=True), "mode=display" in (attributes.get("type") or "").replace(" ", ""))


def of_image(attributes: Attributes, hint: str) -> str:
    """The TeX that an image of a formula has as its text; nothing for other images."""
    alt = attributes.get("alt") or ""
    if not alt or not (_IMAGE_WORDS.search(hint) or "eeimg" in attributes or "data-tex" in attributes):
        return ""
    return delimited(attributes.get("data-tex") or alt, "display" in hint)


def of_mathml(node: LexborNode, attributes: Attributes) -> str:
    """The TeX of a `<math>` element: what it says itself, or else what its elements mean."""
    display = attributes.get("display") == "block" or attributes.get("mode") == "display"
    for annotation in node.css("annotation"):
        if (annotation.attributes.get("encoding") or "").lower() in _TEX_ENCODINGS:
            return delimited(annotation.text(deep=True), display)
    tex = attributes.get("alttext") or " ".join(_tex(node, 0).split())
    return delimited(tex, display)


def _tex(node: LexborNode, depth: int) -> str:
    """TeX of presentation MathML (https://www.w3.org/TR/mathml-core/). What is unknown is its content."""
    if depth > _MOST_NESTED:
        return node.text(deep=True)
    tag, parts = node.tag, []
    if tag in ("annotation", "annotation-xml", "mphantom", "mspace"):
        return " "
    if tag == "mtext":
        return rf"\text{{{node.text(deep=True).strip()}}}"
    if tag in ("mi", "mn", "mo", "ms"):
        return symbol(node.text(deep=True).strip(), tag)
    child = node.child
    while child is not None:
        if not child.is_text_node and not child.is_comment_node:
            parts.append(_tex(child, depth + 1))
        child = child.next
    return _laid_out(tag or "", parts)


def _laid_out(tag: str, parts: list[str]) -> str:
    first, second, third = (*parts, "", "", "")[:3]
    match tag:
        case "mfrac":
            return rf"\frac{{{first}}}{{{second}}}"
        case "mover" | "munder" if second in _ACCENTS[tag]:
            return rf"{_ACCENTS[tag][second]}{{{first}}}"
        case "msup" | "mover":
            return f"{first}^{{{second}}}"
        case "msub" | "munder":
            return f"{first}_{{{second}}}"
        case "msubsup" | "munderover":
            return f"{first}_{{{second}}}^{{{third}}}"
        case "msqrt":
            return rf"\sqrt{{{' '.join(parts)}}}"
        case "mroot":
            return rf"\sqrt[{second}]{{{first}}}"
        case "mtable":
            return rf"\begin{{matrix}}{' '.join(parts)}\end{{matrix}}"
        case "mtr":
            return " & ".join(parts) + r" \\ "
        case "mfenced":
            return f"({', '.join(parts)})"
    return " ".join(part for part in parts if part)


def symbol(text: str, tag: str) -> str:
    """TeX of the text of a MathML token: `mi`, `mn`, `mo` or `ms`."""
    if text in _OPERATORS:
        return _OPERATORS[text]
    if tag == "mi" and len(text) > 1 and text.isascii() and text.isalpha():
        return rf"\operatorname{{{text}}}"
    return text


def _is_balanced(tex: str) -> bool:
    depth = 0
    for character in re.sub(r"\\.", "", tex):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0
