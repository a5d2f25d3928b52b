# ruff: noqa: E501 (markup as it is on pages)
"""Formulae come out as TeX, once, however a page holds them."""

from __future__ import annotations

import pytest

from stoker.data.extraction import extract_text
from tests.data.extraction.pages import article, page

TEX = r"\frac{a}{b} \le x_i^2"
ANNOTATED = (
    '<math{}><semantics><mrow><mi>a</mi></mrow><annotation encoding="application/x-tex">' + TEX
    + "</annotation></semantics></math>"
)  # fmt: skip
FORMS = {
    "katex": f'<span class="katex"><span class="katex-mathml">{ANNOTATED}</span><span class="katex-html" aria-hidden="true">ab</span></span>',
    "mathjax 2": f'<span class="MathJax_Preview">[a]</span><span class="MathJax">ab</span><script type="math/tex">{TEX}</script>',
    "mathjax 3": f'<mjx-container class="MathJax" jax="CHTML"><mjx-math aria-hidden="true">ab</mjx-math><mjx-assistive-mml>{ANNOTATED}</mjx-assistive-mml></mjx-container>',
    "wikipedia": f'<span class="mwe-math-element"><span style="display: none;">{ANNOTATED}</span><img class="mwe-math-fallback-image-inline" aria-hidden="true" alt="{{\\displaystyle {TEX}}}"></span>',
    "wordpress": f'<img src="https://s0.wp.com/latex.php" class="latex" alt="{TEX}">',
    "zhihu": f'<span class="ztext-math" data-tex="{TEX}">ab</span>',
    "zhihu image": f'<img eeimg="1" alt="{TEX}">',
    "latexml": f'<math alttext="{TEX}"><mi>ab</mi></math>',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_formula_comes_out_once_as_its_tex(form: str) -> None:
    text = extract_text(page(f"{article()}<p>Let {FORMS[form].replace('<math{}', '<math')} hold.</p>"))
    assert text.endswith(f"Let ${TEX}$ hold.")


@pytest.mark.parametrize(
    "shown",
    [ANNOTATED.replace("{}", ' display="block"', 1), f'<script type="math/tex; mode=display">{TEX}</script>'],
)
def test_a_formula_that_stands_by_itself_is_a_paragraph(shown: str) -> None:
    assert extract_text(page(f"{article()}<p>Let {shown} hold.</p>")).endswith(f"Let\n\n$${TEX}$$\n\nhold.")


@pytest.mark.parametrize(
    ("mathml", "tex"),
    [
        ("<mfrac><mn>1</mn><mi>n</mi></mfrac>", r"\frac{1}{n}"),
        ("<msubsup><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>0</mn></mrow><mi>n</mi></msubsup>", r"\sum_{i = 0}^{n}"),
        ("<msqrt><mi>x</mi><mo>+</mo><mi>π</mi></msqrt>", r"\sqrt{x + \pi}"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", r"\sqrt[3]{x}"),
        ("<mi>sin</mi><mo>\u2061</mo><mi>x</mi>", r"\operatorname{sin} x"),
        ("<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr></mtable>", r"\begin{matrix}a & b \\ \end{matrix}"),
    ],
)  # fmt: skip
def test_mathml_without_tex_is_written_as_tex(mathml: str, tex: str) -> None:
    assert extract_text(page(f"{article()}<p>Let <math>{mathml}</math> hold.</p>")).endswith(f"Let ${tex}$ hold.")


def test_images_that_are_no_formulae_leave_no_text() -> None:
    assert "shift" not in extract_text(page('<p>A <img class="photo" alt="night shift"> photograph.</p>'))


@pytest.mark.parametrize(
    ("mathml", "tex"),
    [
        ("<mover accent='true'><mi>x</mi><mo>^</mo></mover>", r"\hat{x}"),
        ("<mover><mi>x</mi><mo>&#xAF;</mo></mover>", r"\overline{x}"),
        ("<mover><mi>v</mi><mo>&rarr;</mo></mover>", r"\vec{v}"),
        ("<munder><mi>x</mi><mo>_</mo></munder>", r"\underline{x}"),
        ("<munder><mo>lim</mo><mi>n</mi></munder>", "lim_{n}"),
        ("<mover><mo>&sum;</mo><mi>n</mi></mover>", r"\sum^{n}"),
    ],
)
def test_signs_over_and_under_a_symbol_are_accents(mathml: str, tex: str) -> None:
    assert f"Let ${tex}$ hold." in extract_text(page(f"{article()}<p>Let <math>{mathml}</math> hold.</p>"))


def drawn(inner: str, attributes: str = "") -> str:
    return extract_text(page(f"{article()}<p>Let <mjx-container {attributes}>{inner}</mjx-container> hold.</p>"))


SVG_ROW = (
    '<svg><defs><path id="MJX-1-TEX-I-1D465"></path></defs><g data-mml-node="math"><g data-mml-node="mi"><use data-c="1D465"></use></g>'
    '<g data-mml-node="mo"><use data-c="2264"></use></g><g data-mml-node="TeXAtom"><g data-mml-node="mn"><use data-c="31"></use>'
    '<use data-c="32"></use></g></g></g></svg>'
)
CHTML_ROW = (
    '<mjx-math class="MJX-TEX" aria-hidden="true"><mjx-mi class="mjx-i"><mjx-c class="mjx-c1D465 TEX-I"></mjx-c></mjx-mi>'
    '<mjx-mo class="mjx-n" space="4"><mjx-c class="mjx-c2264"></mjx-c></mjx-mo><mjx-mn class="mjx-n"><mjx-c class="mjx-c31">'
    '</mjx-c><mjx-c class="mjx-c32"></mjx-c></mjx-mn></mjx-math>'
)
POWER = (
    '<mjx-math><mjx-msup><mjx-mi><mjx-c class="mjx-c1D465"></mjx-c></mjx-mi><mjx-script><mjx-mn><mjx-c class="mjx-c32">'
    "</mjx-c></mjx-mn></mjx-script></mjx-msup></mjx-math>"
)


@pytest.mark.parametrize(
    ("inner", "attributes", "shown"),
    [
        (f'<mjx-math data-latex="{TEX}">{POWER}</mjx-math>', "", f"${TEX}$"),
        (f'<svg><g data-mml-node="math" data-latex="{TEX}"></g></svg>', 'jax="SVG"', f"${TEX}$"),
        (POWER, f'data-latex="{TEX}" aria-label="a over b"', f"${TEX}$"),
        (
            '<mjx-math><mjx-mi data-latex="x"></mjx-mi><mjx-mo data-latex="\\le"></mjx-mo></mjx-math>',
            "",
            r"$x \le$",
        ),
        (SVG_ROW, "", r"$x \le 12$"),
        (CHTML_ROW, "", r"$x \le 12$"),
        (POWER, 'aria-label="x  squared"', "[formula: x squared]"),
        (POWER, "", "[formula]"),
        ('<mjx-math data-latex="  "></mjx-math>', 'aria-label=" "', "[formula]"),
        ('<mjx-math><mjx-mi><mjx-c class="mjx-c9FFFFFF"></mjx-c></mjx-mi></mjx-math>', "", "[formula]"),
        ("", "", "[formula]"),
        (CHTML_ROW + "<mjx-assistive-mml><math></math></mjx-assistive-mml>", "", r"$x \le 12$"),
    ],
)
def test_a_drawing_without_mathml_is_its_tex_or_a_marker(inner: str, attributes: str, shown: str) -> None:
    assert drawn(inner, attributes).endswith(f"Let {shown} hold.")


def test_a_drawing_that_stands_by_itself_is_a_paragraph() -> None:
    assert drawn(SVG_ROW, 'display="true"').endswith("Let\n\n$$x \\le 12$$\n\nhold.")


def test_a_drawing_of_any_depth_leaves_a_marker() -> None:
    deep = "<mjx-mrow>" * 5_000 + "x"
    assert "[formula]" in drawn(f"<mjx-math>{deep}</mjx-math>")
