# ruff: noqa: E501 (pages, as they are written)
"""Web pages drawn by templates: real text in the page layouts of the web, where what is content is known exactly.

Every layout is a function of an article and of a stock of furniture (menus, teasers, comments, advertising), in
English or Chinese. The extractor was built while looking at `BUILDING` and judged on `JUDGING`, which are written
in other ways: other tags, names, places.
"""

from __future__ import annotations

import html
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_WORDS = {
    "en": {
        "menu": "Home|About us|Products|Pricing|Blog|Careers|Contact|Support|Documentation|Community|Sign in|World|"
        "Business|Technology|Sport|Culture|Science|Opinion|Video|Podcasts|Newsletters|Shop|Events|Partners",
        "cookie": "We use cookies and similar technologies to give you the best experience, to analyse traffic and to "
        "show personalised content. By clicking Accept you agree to our use of cookies. You can change your choice "
        "at any time in the settings.",
        "newsletter": "Get the best of our writing in your inbox every week. No spam, unsubscribe whenever you like.",
        "ad": "Sponsored: Save up to 40% on cloud servers this month. Start your free trial today, no credit card.",
        "rights": "© 2026 {site} Ltd. All rights reserved. Privacy policy. Terms of use. Cookie settings.",
        "about": "{name} has written on software and science for fifteen years and lives by the sea with two cats.",
        "share": "Share on Facebook|Share on Twitter|Email this|Print|Copy link|Save for later",
        "related": "Related articles", "comments": "{n} comments", "by": "By {name}", "reply": "Reply",
        "tags": "Tags:", "previous": "Previous", "next": "Next", "popular": "Most read", "contents": "On this page",
        "more": "Read more", "date": "Published 14 March 2026, updated 2 days ago", "search": "Search the site",
    },
    "zh": {
        "menu": "首页|新闻|财经|科技|体育|娱乐|教育|汽车|房产|论坛|博客|关于我们|联系我们|登录|注册|下载|文档|社区|视频|"
        "专题|招聘|帮助|反馈|商城",
        "cookie": "本网站使用 Cookie 以提升您的浏览体验、分析网站流量并展示个性化内容。继续浏览即表示您同意我们使用 Cookie，"
        "您可以随时在设置中修改您的选择。",
        "newsletter": "订阅我们的周刊，每周精选好文直达您的邮箱，随时可以退订。",
        "ad": "广告：云服务器限时特惠，新用户低至一折起，立即抢购，名额有限，先到先得！",
        "rights": "版权所有 © 2026 {site} 京ICP备12345678号 未经书面授权不得转载 违法和不良信息举报电话",
        "about": "{name}，资深软件工程师，长期关注分布式系统与数据库，著有多本技术书籍，喜欢登山和摄影。",
        "share": "分享到微信|分享到微博|收藏|打印|举报|复制链接",
        "related": "相关阅读", "comments": "{n} 条评论", "by": "作者：{name}", "reply": "回复",
        "tags": "标签：", "previous": "上一篇：", "next": "下一篇：", "popular": "热门文章", "contents": "本页目录",
        "more": "阅读全文", "date": "发布时间：2026年3月14日 10:25 阅读 1234", "search": "站内搜索",
    },
}  # fmt: skip
_NAMES = {"en": "Ada Marsh|Tom Reyes|Ines Falk|Rui Costa|Jo Lind", "zh": "王小明|李雪|张伟|陈晨|赵一鸣"}


@dataclass(frozen=True)
class Article:
    """Real text as a page's content."""

    title: str
    body: str
    """HTML."""
    language: str
    codes: tuple[str, ...]
    formulae: tuple[str, ...]
    """TeX."""


@dataclass
class Stock:
    """Furniture to draw from: titles and paragraphs are of other documents of the same language."""

    language: str
    titles: list[str]
    paragraphs: list[str]
    draw: random.Random
    site: str = field(default="Northgate")

    def word(self, key: str) -> str:
        """A phrase of a web site."""
        text = _WORDS[self.language][key]
        name = self.draw.choice(_NAMES[self.language].split("|"))
        return text.format(site=self.site, name=name, n=self.draw.randint(2, 90))

    def labels(self, key: str, most: int) -> list[str]:
        """Some of the short phrases of a kind."""
        every = _WORDS[self.language][key].split("|")
        return self.draw.sample(every, min(most, len(every)))

    def links(self, labels: list[str], item: str = "<li>{}</li>") -> str:
        """Labels as links, each in `item`."""
        linked = (f'<a href="/{self.draw.randrange(10**6)}">{html.escape(label)}</a>' for label in labels)
        return "\n".join(item.replace("{}", link) for link in linked)

    def menu(self, most: int = 12, item: str = "<li>{}</li>") -> str:
        """Links of a menu."""
        return self.links(self.labels("menu", most), item)

    def titled(self, most: int = 6, item: str = "<li>{}</li>") -> str:
        """Links to other documents."""
        return self.links(self.draw.choices(self.titles, k=most), item)

    def paragraph(self, most: int = 400) -> str:
        """Running text of another document."""
        return html.escape(self.draw.choice(self.paragraphs)[:most])

    def comments(self, item: str) -> str:
        """Comments in `item`, with {name}, {text} and {reply}."""
        made = []
        for _ in range(self.draw.randint(2, 7)):
            name = self.draw.choice(_NAMES[self.language].split("|"))
            made.append(item.format(name=name, text=self.paragraph(300), reply=self.word("reply")))
        return "\n".join(made)


Layout = Callable[[Article, Stock], str]


def _page(article: Article, stock: Stock, body: str, head: str = "") -> str:
    title = html.escape(article.title)
    noise = (
        f"<script>var u={{'id':{stock.draw.randrange(9**9)},tag:'<div>'}};</script><style>.a{{color:red}}</style>"
    )
    return (
        f'<!DOCTYPE html><html lang="{article.language}"><head><meta charset="utf-8"><title>{title} - {stock.site}'
        f"</title>{head}{noise}</head>{body}</html>"
    )


def wordpress(a: Article, s: Stock) -> str:
    """A weblog with a sidebar of widgets and comments below."""
    return _page(a, s, f"""<body class="single has-sidebar"><div id="page" class="site"><header id="masthead" class="site-header">
<p class="site-title"><a href="/">{s.site}</a></p><nav id="site-navigation" class="main-navigation"><ul id="primary-menu" class="menu">{s.menu(9)}</ul></nav></header>
<div id="content" class="site-content"><div id="primary" class="content-area"><main id="main" class="site-main"><article id="post-12" class="post type-post">
<header class="entry-header"><h1 class="entry-title">{a.title}</h1><div class="entry-meta"><span class="posted-on">{s.word("date")}</span> <span class="byline">{s.word("by")}</span></div></header>
<div class="entry-content">{a.body}<div class="sharedaddy sd-sharing-enabled"><h3>Share</h3><ul>{s.links(s.labels("share", 5))}</ul></div></div>
<footer class="entry-footer"><span class="cat-links">{s.word("tags")} {s.titled(2, "{}")}</span></footer></article>
<nav class="navigation post-navigation"><div class="nav-links">{s.titled(2, "<div>{}</div>")}</div></nav>
<div id="comments" class="comments-area"><h2 class="comments-title">{s.word("comments")}</h2><ol class="comment-list">
{s.comments('<li class="comment"><div class="comment-author">{name}</div><div class="comment-content"><p>{text}</p></div><div class="reply"><a href="#">{reply}</a></div></li>')}</ol></div></main></div>
<aside id="secondary" class="widget-area"><section class="widget widget_search"><form><input type="search"><button>{s.word("search")}</button></form></section>
<section class="widget"><h2>{s.word("popular")}</h2><ul>{s.titled(6)}</ul></section><section class="widget"><p>{s.word("about")}</p></section></aside></div>
<footer id="colophon" class="site-footer"><div>{s.word("rights")}</div></footer></div></body>""")  # fmt: skip


def semantic(a: Article, s: Stock) -> str:
    """Elements that say what they are, and a consent dialog."""
    return _page(a, s, f"""<body><div role="dialog" class="consent"><p>{s.word("cookie")}</p><button>OK</button></div><header><a href="/">{s.site}</a><nav><ul>{s.menu()}</ul></nav></header>
<main><article><h1>{a.title}</h1><p class="byline">{s.word("by")} <time>{s.word("date")}</time></p>{a.body}</article>
<aside><h2>{s.word("related")}</h2>{s.titled(5, "<article><h3>{}</h3></article>")}<p>{s.paragraph(160)}</p></aside>
<section class="comments"><h2>{s.word("comments")}</h2>{s.comments("<div><b>{name}</b><p>{text}</p></div>")}</section></main>
<footer><p>{s.word("newsletter")}</p><ul>{s.menu(8)}</ul><p>{s.word("rights")}</p></footer></body>""")  # fmt: skip


def hashed(a: Article, s: Stock) -> str:
    """Nothing but `div` with names that say nothing."""

    def c() -> str:
        return f'class="css-{s.draw.randrange(36**5):x}"'

    return _page(a, s, f"""<body><div id="__next"><div {c()}><div {c()}>{s.menu(10, "<div>{}</div>")}</div></div><div {c()}><div {c()}><div {c()}><h1 {c()}>{a.title}</h1>
<div {c()}>{s.word("by")}</div><div {c()}>{s.word("date")}</div></div><div {c()}>{a.body}</div><div {c()}>{s.links(s.labels("share", 4), "<span>{}</span>")}</div></div>
<div {c()}><div {c()}>{s.word("popular")}</div>{s.titled(7, "<div><div>{}</div></div>")}<div {c()}>{s.word("ad")}</div></div></div>
<div {c()}><div {c()}>{s.word("newsletter")}</div><div>{s.word("rights")}</div>{s.menu(8, "<span>{}</span>")}</div></div></body>""")  # fmt: skip


def tables(a: Article, s: Stock) -> str:
    """A page of the nineties, laid out by a table."""
    return _page(a, s, f"""<BODY bgcolor=white><TABLE width="100%" cellpadding=4><TR><TD colspan=3 bgcolor=navy><FONT color=white size=5>{s.site}</FONT><BR>{s.menu(7, "{} | ")}</TD></TR>
<TR><TD width=150 valign=top><FONT size=2>{s.menu(14, "{}<BR>")}<P>{s.word("ad")}</FONT></TD><TD valign=top><H1>{a.title}</H1>{a.body}</TD>
<TD width=150 valign=top><B>{s.word("popular")}</B><BR>{s.titled(5, "{}<BR>")}</TD></TR><TR><TD colspan=3 align=center><FONT size=1>{s.word("rights")}</FONT></TD></TR></TABLE></BODY>""")  # fmt: skip


def portal(a: Article, s: Stock) -> str:
    """A news portal as they are in China."""
    return _page(a, s, f"""<body><div class="topbar"><div class="w1200">{s.menu(16, "{} ")}</div></div><div class="logo"><a href="/">{s.site}</a></div><div class="nav clearfix"><ul>{s.menu(14)}</ul></div>
<div class="weizhi">{s.menu(3, "{} &gt; ")}</div><div class="wrap clearfix"><div class="left fl"><div class="title"><h1>{a.title}</h1><div class="info"><span>{s.word("date")}</span><span>{s.word("by")}</span></div></div>
<div class="content" id="artibody">{a.body}</div><div class="editor">{s.word("by")}</div><div class="bdsharebuttonbox">{s.links(s.labels("share", 4), "{}")}</div><div class="xgyd"><h3>{s.word("related")}</h3><ul>{s.titled(8)}</ul></div>
<div class="pn"><p>{s.word("previous")}{s.titled(1, "{}")}</p><p>{s.word("next")}{s.titled(1, "{}")}</p></div><div class="pinglun"><h3>{s.word("comments")}</h3>{s.comments('<dl><dt>{name}</dt><dd>{text}</dd></dl>')}</div></div>
<div class="right fr"><div class="box"><h3>{s.word("popular")}</h3><ul>{s.titled(10)}</ul></div><div class="box gg"><p>{s.word("ad")}</p></div></div></div><div class="foot"><p>{s.menu(8, "{} | ")}</p><p>{s.word("rights")}</p></div></body>""")  # fmt: skip


def manual(a: Article, s: Stock) -> str:
    """A site of documentation with a tree of pages at the left and a table of contents at the right."""
    return _page(a, s, f"""<body><div class="navbar navbar--fixed-top"><div class="navbar__inner">{s.menu(6, "{}")}</div></div><div class="docs-wrapper"><aside class="theme-doc-sidebar-container"><nav class="menu"><ul class="menu__list">{s.titled(25)}</ul></nav></aside>
<main class="docMainContainer"><div class="container"><div class="row"><div class="col"><nav class="theme-doc-breadcrumbs"><ul class="breadcrumbs">{s.menu(3)}</ul></nav><div class="theme-doc-markdown markdown"><h1>{a.title}</h1>{a.body}</div>
<footer class="theme-doc-footer"><a href="#">Edit this page</a><div>{s.word("date")}</div></footer><nav class="pagination-nav">{s.titled(2, "<div>{}</div>")}</nav></div><div class="col col--3"><div class="table-of-contents"><b>{s.word("contents")}</b><ul>{s.titled(8)}</ul></div></div></div></div></main></div>
<footer class="footer">{s.menu(9, "<div>{}</div>")}<div class="footer__copyright">{s.word("rights")}</div></footer></body>""")  # fmt: skip


def newspaper(a: Article, s: Stock) -> str:
    """A newspaper that puts promotions between the paragraphs of its article."""
    promotion = f'<div data-component="inset"><p>{s.word("newsletter")}</p><a href="/n">{s.word("more")}</a></div>'
    parts = a.body.split("</p>", 3)
    body = "</p>".join(parts[:2]) + "</p>" + promotion + "</p>".join(parts[2:]) if len(parts) > 3 else a.body
    return _page(a, s, f"""<body><a href="#c" class="skip">Skip to content</a><div data-component="ad-slot"><span>{s.word("ad")}</span></div><div id="header"><ul class="sections">{s.menu(16)}</ul></div>
<div class="story"><div class="story__hed"><h1>{a.title}</h1><h2 class="story__standfirst"></h2></div><div class="story__details">{s.word("by")}, {s.word("date")}</div><div class="tools"><ul>{s.links(s.labels("share", 5))}</ul></div>
<section name="articleBody">{body}</section><div class="story__end"><p>{s.word("about")}</p></div></div>
<div class="onward"><h2>{s.word("related")}</h2>{s.titled(6, '<div class="card"><h3>{}</h3></div>')}</div><div class="thread"><h2>{s.word("comments")}</h2>{s.comments('<div class="thread__post"><i>{name}</i><div>{text}</div><a href="#">{reply}</a></div>')}</div>
<div id="bottom"><ul>{s.menu(14)}</ul><small>{s.word("rights")}</small></div></body>""")  # fmt: skip


def weblog_zh(a: Article, s: Stock) -> str:
    """A host of technical weblogs."""
    return _page(a, s, f"""<body><div id="home"><div id="blogHeader"><div id="blogTitle"><h2><a href="/">{s.site}</a></h2></div><div id="navigator"><ul id="navList">{s.menu(7)}</ul></div></div>
<div id="mainBox"><div id="mainContent"><div class="forFlow"><div id="topics"><div class="post"><h1 class="postTitle"><a href="#">{a.title}</a></h1><div id="cnblogs_post_body" class="blogpost-body">{a.body}</div>
<div id="MySignature"><p>{s.word("about")}</p></div><div id="blog_post_info_block"><div id="EntryTag">{s.word("tags")} {s.titled(2, "{}")}</div><div id="post_next_prev">{s.titled(2, "{}<br>")}</div></div><div class="postDesc">{s.word("date")} {s.word("by")}</div></div></div>
<div id="blog-comments-placeholder"><div class="feedback_area_title">{s.word("comments")}</div>{s.comments('<div class="feedbackItem"><div class="feedbackListSubtitle">{name}</div><div class="feedbackCon">{text}</div></div>')}</div></div></div>
<div id="sideBar"><div class="newsItem"><h3 class="catListTitle">{s.word("about")}</h3></div><div class="catListPostArchive"><h3>{s.word("popular")}</h3><ul>{s.titled(9)}</ul></div></div><div id="footer">{s.word("rights")}</div></div></body>""")  # fmt: skip


def drupal(a: Article, s: Stock) -> str:
    """Regions and blocks of a content management system."""
    return _page(a, s, f"""<body class="path-node layout-two-sidebars"><div class="dialog-off-canvas-main-canvas"><div class="layout-container"><div class="region region-header"><div class="block block-system-branding-block">{s.site}</div><div class="block block-menu"><ul>{s.menu(9)}</ul></div></div>
<div class="region region-highlighted"><div class="block eu-compliance">{s.word("cookie")}</div></div><div class="layout-content"><div class="region region-content"><div class="block block-page-title-block"><h1>{a.title}</h1></div><div class="block block-system-main-block"><div class="node node--type-page">
<div class="node__submitted">{s.word("by")} {s.word("date")}</div><div class="node__body"><div class="field field--name-body">{a.body}</div></div><ul class="links inline">{s.links(s.labels("share", 3))}</ul></div></div></div></div>
<div class="layout-sidebar-first"><div class="region region-sidebar-first"><div class="block"><h2>{s.word("popular")}</h2><ul>{s.titled(8)}</ul></div><div class="block"><p>{s.paragraph(200)}</p><p><a href="/">{s.word("more")}</a></p></div></div></div><div class="region region-footer"><p>{s.word("rights")}</p></div></div></div></body>""")  # fmt: skip


def unclosed(a: Article, s: Stock) -> str:
    """Old pages by hand: capital letters, nested tables, elements that are never closed."""
    body = re.sub(r"</(?:p|li|tr|td|th|dd|dt)>", "", a.body)
    return _page(a, s, f"""<BODY><CENTER><TABLE border=0><TR><TD>{s.menu(8, "[{}] ")}</TABLE></CENTER><HR><TABLE><TR><TD valign=top width="20%"><TABLE><TR><TD>{s.menu(10, "<LI>{}")}</TABLE>
<TD valign=top><TABLE width="100%"><TR><TD><H2>{a.title}</H2><TR><TD>{body}</TABLE></TABLE><HR><P>{s.titled(2, "{} ")}<P><FONT size=-1><I>{s.word("rights")}</I></FONT></BODY>""")  # fmt: skip


def utility(a: Article, s: Stock) -> str:
    """Classes that name looks, not meaning, and a `main` around everything."""
    return _page(a, s, f"""<body class="antialiased"><main class="min-h-screen flex flex-col"><div class="flex items-center justify-between px-4">{s.menu(7, '<span class="px-2">{}</span>')}</div>
<div class="grid grid-cols-12 gap-8"><div class="col-span-3 text-sm">{s.titled(14, '<div class="py-1">{}</div>')}</div><div class="col-span-7 prose lg:prose-xl"><h1 class="text-4xl">{a.title}</h1><div class="text-gray-500 text-sm flex">{s.word("by")}<span>{s.word("date")}</span></div>{a.body}
<div class="mt-8 flex gap-2">{s.links(s.labels("share", 4), '<span class="rounded">{}</span>')}</div></div><div class="col-span-2"><div class="border p-4"><p class="font-bold">{s.word("newsletter")}</p></div></div></div>
<div class="bg-gray-100 p-8"><div class="text-xl">{s.word("related")}</div>{s.titled(4, '<div class="shadow"><h3>{}</h3><p>' + s.paragraph(120) + "</p></div>")}</div><div class="text-center text-xs">{s.word("rights")}</div></main></body>""")  # fmt: skip


def question(a: Article, s: Stock) -> str:
    """A wiki of questions: the content between two toolbars, hot questions beside it."""
    return _page(a, s, f"""<body><div class="top-bar js-top-bar"><ol>{s.menu(8)}</ol></div><div class="container"><div id="left-sidebar"><ol class="nav-links">{s.menu(6)}</ol></div><div id="content" class="snippet-hidden"><div class="inner-content"><div id="question-header"><h1><a href="#">{a.title}</a></h1></div>
<div class="d-flex">{s.word("date")}</div><div id="mainbar" role="main"><div class="question"><div class="votecell"><div class="js-vote-count">{s.draw.randint(0, 99)}</div></div><div class="postcell"><div class="s-prose js-post-body" itemprop="text">{a.body}</div>
<div class="post-taglist">{s.menu(3, "{}")}</div><div class="user-details">{s.word("by")}</div></div><div class="comments js-comments-container"><ul>{s.comments('<li><span class="comment-copy">{text}</span> – {name}</li>')}</ul></div></div></div>
<div id="sidebar"><div class="s-sidebarwidget"><p>{s.word("ad")}</p></div><div id="hot-network-questions"><h4>{s.word("popular")}</h4><ul>{s.titled(12)}</ul></div></div></div></div></div><div id="footer" class="site-footer"><ul>{s.menu(12)}</ul><p>{s.word("rights")}</p></div></body>""")  # fmt: skip


def magazine(a: Article, s: Stock) -> str:
    """A magazine: the story in one block of a stack, a discussion and cards of other stories in the next."""
    return _page(a, s, f"""<body><div class="stack"><div class="stack__item bar">{s.menu(9, "<span>{}</span>")}</div><div class="stack__item hero"><img alt="x"><div class="kicker">{s.menu(1, "{}")}</div></div>
<div class="stack__item"><div class="paper"><h1 class="paper__headline">{a.title}</h1><div class="credits">{s.word("by")} · {s.word("date")}</div><div class="paper__flow">{a.body}</div><div class="paper__end">{s.word("tags")} {s.titled(3, "{} ")}</div></div></div>
<div class="stack__item discussion"><h2>{s.word("comments")}</h2>{s.comments('<blockquote><cite>{name}</cite><p>{text}</p></blockquote>')}</div>
<div class="stack__item">{s.titled(5, '<div class="tile"><h4>{}</h4><p>' + s.paragraph(150) + "</p></div>")}</div><div class="stack__item base"><p>{s.word("newsletter")}</p><p>{s.word("rights")}</p></div></div></body>""")  # fmt: skip


def office_zh(a: Article, s: Stock) -> str:
    """A public office in China: tables for the layout, the text in an editor's block."""
    return _page(a, s, f"""<body><table width="1000" align="center"><tr><td class="top">{s.menu(8, "<a>{}</a>&nbsp;")}</td></tr></table><table width="1000" align="center"><tr><td width="220" valign="top"><table>{s.menu(9, "<tr><td>{}</td></tr>")}</table></td>
<td valign="top"><table width="100%"><tr><td>{s.menu(3, "{} &gt; ")}</td></tr><tr><td align="center" class="bt">{a.title}</td></tr><tr><td align="center" class="rq">{s.word("date")}</td></tr><tr><td class="nr"><div class="TRS_Editor">{a.body}</div></td></tr>
<tr><td align="right">{s.links(s.labels("share", 3), "【{}】")}</td></tr></table></td></tr></table><table width="1000" align="center"><tr><td align="center">{s.menu(6, "{} | ")}<br>{s.word("rights")}</td></tr></table></body>""")  # fmt: skip


def builder(a: Article, s: Stock) -> str:
    """A site builder: every part is a numbered block in a grid."""

    def block(inner: str) -> str:
        return f'<div class="row-{s.draw.randrange(99)}"><div class="cell span-12"><div id="block-{s.draw.randrange(10**8):x}">{inner}</div></div></div>'

    return _page(a, s, f"""<body><div id="siteWrapper"><div id="head-{s.draw.randrange(99)}">{s.menu(6, "<div>{}</div>")}</div><div id="canvas">{block(f"<h1>{a.title}</h1>")}{block(f"<p>{s.word('by')}</p>")}{block(a.body)}
{block(s.links(s.labels("share", 3), "<span>{}</span>"))}{block(f"<h3>{s.word('related')}</h3>" + s.titled(3, "<p>{}</p>"))}</div><div id="base">{s.word("newsletter")} {s.word("rights")}</div></div></body>""")  # fmt: skip


BUILDING: tuple[Layout, ...] = (wordpress, semantic, hashed, tables, portal, manual, newspaper, utility)
JUDGING: tuple[Layout, ...] = (weblog_zh, drupal, unclosed, question, magazine, office_zh, builder)
