# ruff: noqa: E501 (selectors and patterns of markup)
"""Pages with gold text for judging extractors: articles drawn into layouts, and manuals whose themes are known."""

from __future__ import annotations

import gzip
import html
import json
import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from selectolax.lexbor import LexborHTMLParser

import extraction_layouts as layouts

_TOKENS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
_BLOCKS = "address article aside blockquote br caption dd div dl dt figcaption figure h1 h2 h3 h4 h5 h6 hr li ol p pre section table tbody td th tr ul"
_LEAST, _MOST = 800, 40_000
"""Characters of an article's Markdown."""
_LEAST_TOKENS = 100


@dataclass(frozen=True)
class Case:
    """A page and what an extractor should make of it."""

    kind: str
    """Its layout or manual."""
    page: str
    gold: str
    codes: tuple[str, ...]
    formulae: tuple[str, ...]


def tokens(text: str) -> list[str]:
    """Words, and each character of Chinese and Japanese by itself."""
    return _TOKENS.findall(text.lower())


def drawn(folder: Path, which: str, each: int) -> Iterator[Case]:
    """`each` pages of every layout of `building` or `judging`, filled from `*-md*.jsonl.gz` and the like."""
    stocks = {language: _articles(folder, language) for language in ("en", "zh")}
    for layout in layouts.BUILDING if which == "building" else layouts.JUDGING:
        draw = random.Random(f"{which} {layout.__name__}")
        for number in range(each):
            language = "zh" if layout.__name__ in ("portal", "weblog_zh", "office_zh") else ("en", "zh")[number % 2]
            texts = stocks[language]
            half = [text for text in texts if zlib.crc32(text.encode()) % 2 == (which == "building")]
            article = _article(draw.choice(half), language, draw)
            stock = layouts.Stock(language, [_title(text) for text in half], _paragraphs(half[:200]), draw)
            if len(tokens(gold_text(article.body))) < _LEAST_TOKENS:
                continue  # nothing but a heading and a list of links
            gold = article.title + "\n" + gold_text(_plain_formulae(article.body))
            yield Case(layout.__name__, layout(article, stock), gold, article.codes, article.formulae)


def _articles(folder: Path, language: str) -> list[str]:
    names = {"en": ("rust-rfcs", "d2l-zh", "pingcap-docs-cn"), "zh": ("oi-wiki-md", "pingcap-docs-cn", "d2l-zh")}[
        language
    ]
    found: list[str] = []
    for name in names:
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
            own = [json.loads(line)["text"] for line in stream]
        own = [t for t in own if _LEAST <= len(t) <= _MOST and re.search(r"^# \S", t, re.M) and _is(t, language)]
        found += own[:600]
    return found


def _is(text: str, language: str) -> bool:
    chinese = len(re.findall("[\u3400-\u9fff]", text)) / len(text)
    return chinese > 0.1 if language == "zh" else chinese < 0.01


def _title(text: str) -> str:
    found = re.search(r"^# (\S.*)$", text, re.M)
    return re.sub(r"[`*_{}#]|\(.*?\)", "", found[1]).strip() or "Untitled" if found else "Untitled"


def _paragraphs(texts: list[str]) -> list[str]:
    return [p for t in texts for p in t.split("\n\n") if len(p) > 60 and p[0].isalpha() and "```" not in p]


def _article(text: str, language: str, draw: random.Random) -> layouts.Article:
    title = _title(text)
    text = re.sub(r"^# \S.*$", "", text, count=1, flags=re.M)
    text = re.sub(r"<!--.*?-->|^:\w+:`.*$|^---\n.*?\n---\n", "", text, flags=re.S | re.M)
    style = draw.choice(("katex", "mathjax", "image", "mathml"))
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").use(dollarmath_plugin)
    codes: list[str] = []
    formulae: list[str] = []

    def code(self: object, parsed: list[Token], at: int, *_: object) -> str:
        codes.append(parsed[at].content)
        return _highlighted(parsed[at].content, draw.choice(("plain", "spans", "table")))

    def formula(self: object, parsed: list[Token], at: int, *_: object) -> str:
        formulae.append(parsed[at].content)
        return _formula(parsed[at].content, style, display=parsed[at].type == "math_block")

    for kind in ("fence", "code_block"):
        markdown.add_render_rule(kind, code)
    for kind in ("math_inline", "math_block", "math_inline_double"):
        markdown.add_render_rule(kind, formula)
    body = str(markdown.render(text))
    return layouts.Article(title, body, language, tuple(codes), tuple(formulae))


def _highlighted(code: str, style: str) -> str:
    text = html.escape(code, quote=False)
    if style == "plain":
        return f"<pre><code>{text}</code></pre>\n"
    coloured = re.sub(r"\b(fn|let|int|for|return|if|def|import|SELECT|class)\b", r'<span class="k">\1</span>', text)
    if style == "spans":
        return f'<div class="highlight"><pre><span></span>{coloured}</pre></div>\n'
    numbers = "\n".join(str(n + 1) for n in range(code.rstrip("\n").count("\n") + 1))
    return (
        f'<table class="highlighttable"><tr><td class="linenos"><div class="linenodiv"><pre>{numbers}</pre></div></td>'
        f'<td class="code"><div class="highlight"><pre>{coloured}</pre></div></td></tr></table>\n'
    )


def _formula(tex: str, style: str, display: bool) -> str:
    text, quoted = html.escape(tex, quote=False), html.escape(tex)
    drawn_as = html.escape(re.sub(r"[\\{}]", "", tex), quote=False)
    kept = f'<i data-gold="{quoted}"></i>'
    if style == "katex":
        made = (
            f'<span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>{drawn_as}</mi></mrow>'
            f'<annotation encoding="application/x-tex">{text}</annotation></semantics></math></span>'
            f'<span class="katex-html" aria-hidden="true">{drawn_as}</span></span>'
        )
        made = f'<span class="katex-display">{made}</span>' if display else made
    elif style == "mathjax":
        mode = "; mode=display" if display else ""
        made = (
            f'<span class="MathJax_Preview"></span><span class="MathJax"><nobr>{drawn_as}</nobr></span>'
            f'<script type="math/tex{mode}">{tex}</script>'
        )
    elif style == "image":
        made = f'<img class="latex" src="/l.png" alt="{quoted}" title="{quoted}">'
    else:
        made = (
            f'<span class="mwe-math-element"><span class="mwe-math-mathml-inline" style="display: none;"><math '
            f'alttext="{quoted}"><semantics><mi>{drawn_as}</mi><annotation encoding="application/x-tex">{text}'
            f'</annotation></semantics></math></span><img class="mwe-math-fallback-image-inline" alt="{quoted}"></span>'
        )
    return f"<p>{kept}{made}</p>" if display else kept + made


_MADE = re.compile(
    r'<i data-gold="([^"]*)"></i>(?:<span class="(?:katex|katex-display|mwe-math-element)">.*?(?:</math></span>'
    r"(?:<span class=\"katex-html\".*?</span></span>(?:</span>)?|<img[^>]*></span>))|<span class=\"MathJax_Preview\">.*?</script>|<img[^>]*>)",
    re.S,
)


def _plain_formulae(body: str) -> str:
    """The body with each formula as its TeX, which is what should come out of it."""
    return _MADE.sub(lambda match: f" {match[1]} ", body)


def gold_text(page: str, container: str = "", without: str = "") -> str:
    """The text of the elements that a selector finds, without those of another."""
    parser = LexborHTMLParser(page)
    for node in parser.css(
        "script, style, head, noscript, button, input, select, .linenos" + (f", {without}" if without else "")
    ):
        node.decompose()
    roots = parser.css(container) if container else [parser.body or parser.root]
    parts: list[str] = []
    blocks = frozenset(_BLOCKS.split())
    for root in roots[:1]:
        for node in root.traverse(include_text=True):
            if node.tag == "-text":
                parts.append(node.text_content or "")
            elif node.tag in blocks:
                parts.append("\n")
    return "".join(parts)


@dataclass(frozen=True)
class Manual:
    """A package of HTML documentation: where its files are, and where its theme puts the content."""

    files: str
    container: str
    without: str
    judging: bool


_SPHINX = ".headerlink, .sphinxsidebar, .clearer, .toctree-wrapper, .contents"
_DOCBOOK = ".navheader, .navfooter, .toc"
MANUALS = {
    "python": Manual("python3.11-doc/**/*.html", "div.body", _SPHINX, False),
    "postgresql": Manual("postgresql-doc-15/**/*.html", "body", _DOCBOOK, False),
    "debian-reference-zh": Manual("debian-reference-zh-cn/**/*.html", "body", _DOCBOOK, False),
    "maint-guide-zh": Manual("maint-guide-zh-cn/**/*.html", "body", _DOCBOOK, False),
    "cppreference": Manual("cppreference-doc-en-html/**/cpp/**/*.html", "#mw-content-text", ".t-navbar, .editsection, .t-template-editlink, .t-example-live-link, .coliru-btn", False),
    "linux": Manual("linux-doc-6.1/**/*.html", "[itemprop=articleBody], div.body", ".headerlink, .toctree-wrapper, .contents", False),
    "rustdoc": Manual("rust-doc/**/std/**/*.html", "#main-content", ".out-of-band, .src, .srclink, .rightside, .anchor", False),
    "apache": Manual("apache2-doc/**/*.html.[ez][nh]*", "#page-content", "#quickview, .top, #comments_section", True),
    "django": Manual("python-django-doc/**/*.html", "div.yui-g", ".headerlink, .toctree-wrapper, .contents", True),
    "sympy": Manual("python-sympy-doc/**/*.html", "article[role=main]", ".headerlink, .viewcode-link, .toctree-wrapper, .contents", True),
    "developers-reference": Manual("developers-reference/**/*.html", "div.body", _SPHINX, True),
    "debian-handbook": Manual("debian-handbook/**/[ez][nh]-*/*.html", "div.chapter, div.section, div.preface, div.book", ".docnav, .toc", True),
    "gimp-help-zh": Manual("gimp-help-zh-cn/**/*.html", "body", _DOCBOOK, True),
    "libreoffice-help-zh": Manual("libreoffice-help-zh-cn/**/text/**/*.html", "#DisplayArea", ".howtoget", True),
    "kicad-zh": Manual("kicad-doc-zh/**/*.html", "#content", "", True),
    "maxima": Manual("maxima-doc/**/*.html", "body", "div.header", True),
}  # fmt: skip


def of_manuals(folder: Path, which: str, each: int) -> Iterator[Case]:
    """Up to `each` pages of every manual that is unpacked under a folder."""
    for name, manual in MANUALS.items():
        if manual.judging != (which == "judging"):
            continue
        paths = sorted(path for path in folder.glob(manual.files) if path.is_file() and path.suffix != ".gz")
        random.Random(name).shuffle(paths)
        made = 0
        for path in paths:
            page = path.read_text(encoding="utf-8", errors="replace")
            gold = gold_text(page, manual.container, manual.without)
            if len(gold.strip()) < 300 or len(page) > 1_000_000:
                continue
            parser = LexborHTMLParser(page)
            codes = tuple(
                node.text(deep=True)
                for root in parser.css(manual.container)[:1]
                for node in root.css("pre")
                if not node.css_matches(".linenodiv pre")
            )
            yield Case(name, page, gold, codes, ())
            made += 1
            if made == each:
                break
