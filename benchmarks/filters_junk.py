"""Junk as crawls bring it, drawn: each kind from a seed, out of real lines where it is real text gone wrong."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from random import Random

Draw = Callable[[Random, Sequence[str]], str]
"""(randomness, real texts of the language) to one junk document."""

_MENU = (
    "Home",
    "Start",
    "Shop",
    "Store",
    "Catalogue",
    "Products",
    "Services",
    "Solutions",
    "Pricing",
    "Blog",
    "News",
    "Events",
    "Press",
    "Careers",
    "Jobs",
    "Partners",
    "About us",
    "Our story",
    "Contact us",
    "Contact",
    "Help",
    "FAQ",
    "Support",
    "Sitemap",
    "Login",
    "Log in",
    "Sign up",
    "Register",
    "My account",
    "Wishlist",
    "Shopping cart",
    "View cart",
    "Checkout",
    "Search",
    "Privacy policy",
    "Terms of service",
    "Terms and conditions",
    "Cookie policy",
    "Accept all cookies",
    "Subscribe",
    "Newsletter",
    "Follow us",
    "Share this",
    "Tweet",
    "Read more",
    "Back to top",
    "Skip to content",
    "All rights reserved",
    "Next page",
    "Previous post",
    "Leave a reply",
    "Comments",
    "Tags",
    "Archives",
    "Recent posts",
    "RSS",
    "Download now",
)
_CHINESE_MENU = (
    "首页",
    "产品中心",
    "新闻动态",
    "行业资讯",
    "关于我们",
    "联系我们",
    "人才招聘",
    "网站地图",
    "在线留言",
    "友情链接",
    "登录",
    "注册",
    "我的购物车",
    "加入收藏",
    "设为首页",
    "返回顶部",
    "上一篇",
    "下一篇",
    "相关阅读",
    "热门推荐",
    "点击查看更多",
    "阅读全文",
    "分享到微信",
    "扫一扫关注公众号",
    "版权所有",
    "隐私政策",
    "用户协议",
    "免责声明",
    "京ICP备12345678号",
    "技术支持",
    "客服电话",
    "在线客服",
    "更多精彩",
    "收藏本站",
    "举报",
    "评论",
    "点赞",
    "转发",
)
_OFFERS = (
    "Buy now and save {n}%!",
    "Limited time offer: {n}% off all orders.",
    "Click here to claim your free gift.",
    "Order today, free shipping worldwide!",
    "Best price guaranteed.",
    "Act now, only {n} left in stock!",
    "Don't miss out on this exclusive offer.",
    "Use coupon code SAVE{n} at checkout.",
    "Money back guarantee, no questions asked.",
    "Call now for your free quote.",
    "Earn ${n}00 a week working from home.",
    "Lowest prices on replica watches.",
    "Get your free trial today.",
    "Cheap loans, no credit check.",
    "Add to cart",
    "Subscribe to our newsletter for special offers.",
    "As seen on TV!",
    "Satisfaction guaranteed or your money back.",
)
_CHINESE_OFFERS = (
    "限时特价，仅需{n}元！",
    "全场{n}折起，包邮到家。",
    "加微信领取优惠券，先到先得。",
    "点击下方链接立即购买。",
    "扫码关注公众号，免费领取红包。",
    "厂家直销，批发价更低，欢迎咨询。",
    "今日下单立减{n}元，赠品多多。",
    "诚招代理，日赚{n}00元不是梦。",
    "客服热线：400-{n}8-1234，24小时在线。",
    "正品保证，假一赔十，七天无理由退换货。",
    "抢购热线，数量有限，售完即止。",
    "免费试用，效果看得见。",
    "转发朋友圈，集赞送好礼。",
)
_KEYWORDS = (
    "hotel",
    "flight",
    "cheap",
    "deal",
    "paris",
    "london",
    "rome",
    "ticket",
    "loan",
    "mortgage",
    "credit",
    "card",
    "phone",
    "ringtone",
    "lyrics",
    "movie",
    "torrent",
    "mp3",
    "download",
    "crack",
    "serial",
    "keygen",
    "watch",
    "online",
    "hd",
    "stream",
    "insurance",
    "lawyer",
    "accident",
    "injury",
    "quote",
    "casino",
    "bonus",
    "slots",
    "viagra",
    "diet",
    "pills",
    "weight",
    "loss",
    "seo",
    "backlinks",
    "forum",
    "profile",
    "dating",
    "chat",
    "wallpaper",
    "driver",
    "update",
    "software",
    "coupon",
)
_FOREIGN = {
    "fr": (
        (
            "la ville",
            "le fleuve",
            "une maison",
            "les enfants",
            "notre voisin",
            "le marché",
            "cette année",
            "la forêt",
            "son frère",
            "un livre",
        ),
        ("était", "regardait", "avait oublié", "cherchait depuis longtemps", "traversait", "n'aimait pas"),
        ("avec", "dans", "pour", "sans", "derrière", "pendant"),
    ),
    "de": (
        (
            "die Stadt",
            "der Fluss",
            "ein Haus",
            "die Kinder",
            "unser Nachbar",
            "der Markt",
            "dieses Jahr",
            "der Wald",
            "sein Bruder",
            "ein Buch",
        ),
        ("sah", "hatte vergessen", "suchte lange", "überquerte", "mochte nicht", "blieb"),
        ("mit", "in", "für", "ohne", "hinter", "während"),
    ),
    "es": (
        (
            "la ciudad",
            "el río",
            "una casa",
            "los niños",
            "nuestro vecino",
            "el mercado",
            "este año",
            "el bosque",
            "su hermano",
            "un libro",
        ),
        ("estaba", "miraba", "había olvidado", "buscaba hace tiempo", "cruzaba", "no quería"),
        ("con", "en", "para", "sin", "detrás de", "durante"),
    ),
    "it": (
        (
            "la città",
            "il fiume",
            "una casa",
            "i bambini",
            "il nostro vicino",
            "il mercato",
            "quest'anno",
            "il bosco",
            "suo fratello",
            "un libro",
        ),
        ("era", "guardava", "aveva dimenticato", "cercava da tempo", "attraversava", "non voleva"),
        ("con", "in", "per", "senza", "dietro", "durante"),
    ),
    "ru": (
        ("город", "река", "дом", "дети", "наш сосед", "рынок", "этот год", "лес", "его брат", "книга"),
        ("был", "смотрел", "забыл", "давно искал", "переходил", "не хотел"),
        ("с", "в", "для", "без", "за", "через"),
    ),
    "ja": (
        ("町は", "川が", "家に", "子供たちは", "隣の人は", "市場で", "今年は", "森の中で", "弟が", "本を"),
        ("見ていた", "忘れていた", "探していました", "渡りました", "好きではない", "残った"),
        ("そして", "けれども", "だから", "また", "しかし", "それから"),
    ),
    "ko": (
        ("도시는", "강이", "집에", "아이들은", "이웃 사람은", "시장에서", "올해는", "숲 속에서", "동생이", "책을"),
        ("보고 있었다", "잊고 있었다", "찾고 있었습니다", "건넜습니다", "좋아하지 않았다", "남았다"),
        ("그리고", "그렇지만", "그래서", "또", "하지만", "그때"),
    ),
}
_TAGS = ("div", "span", "td", "li", "p", "a", "b", "font", "table", "tr", "ul")


def _lines(draw: Random, real: Sequence[str], least: int = 15) -> list[str]:
    while True:
        lines = [line.strip() for line in draw.choice(real).split("\n") if len(line.strip()) >= least]
        if lines:
            return lines


def _passage(draw: Random, real: Sequence[str], size: int) -> str:
    text = draw.choice([one for one in draw.choices(real, k=8) if len(one) > size // 2] or list(real))
    start = draw.randrange(max(1, len(text) - size))
    return text[start : start + size]


def _menu(draw: Random, entries: Sequence[str]) -> str:
    chosen = draw.choices(entries, k=draw.randint(15, 60))
    return draw.choice((" | ", "\n", "  ", " > ", " · ")).join(chosen)


def _offers(draw: Random, offers: Sequence[str]) -> str:
    chosen = [draw.choice(offers).format(n=draw.randint(1, 99)) for _ in range(draw.randint(4, 15))]
    return draw.choice((" ", "\n")).join(chosen)


def _repeated_lines(draw: Random, real: Sequence[str]) -> str:
    few = [draw.choice(_lines(draw, real)) for _ in range(draw.randint(1, 3))]
    repeated = [draw.choice(few) for _ in range(draw.randint(20, 120))]
    return "\n".join([draw.choice(_lines(draw, real)), *repeated, draw.choice(_lines(draw, real))])


def _repeated_phrase(draw: Random, real: Sequence[str]) -> str:
    phrase = _passage(draw, real, draw.randint(25, 80)).replace("\n", " ")
    return f"{phrase} " * draw.randint(15, 80)


def _broken_html(draw: Random, real: Sequence[str]) -> str:
    pieces = []
    for line in _lines(draw, real)[: draw.randint(5, 30)]:
        tag = draw.choice(_TAGS)
        attributes = f' class="c{draw.randint(1, 999)} col-md-{draw.randint(1, 12)}" id="x{draw.randint(1, 9999)}"'
        link = f'<a href="/p/{draw.randint(1, 99999)}?ref={draw.randint(1, 99)}">'
        pieces.append(
            f"<{tag}{attributes}>{link}{line[:60]}</a>&nbsp;&raquo;<br>"
            + (f"</{tag}>" if draw.random() < 0.6 else "")
        )
    return "\n".join(pieces)


def _mojibake(draw: Random, real: Sequence[str]) -> str:
    text = _passage(draw, real, draw.randint(200, 1200))
    manner = draw.randrange(4)
    if manner == 0:
        return text.encode().decode("gb18030", "replace")
    if manner == 1:
        return text.encode("gb18030", "replace").decode("latin-1")
    if manner == 2:
        return text.encode().decode("cp1252", "replace")
    return text.encode("gb18030", "replace").decode("utf-8", "replace")


def _foreign(languages: Sequence[str]) -> Draw:
    def draw_one(draw: Random, real: Sequence[str]) -> str:
        language = draw.choice(languages)
        nouns, verbs, joints = _FOREIGN[language]
        sentences = []
        for _ in range(draw.randint(20, 60)):
            parts = [
                draw.choice(nouns),
                draw.choice(verbs),
                draw.choice(joints),
                draw.choice(nouns),
                str(draw.randint(2, 99)),
            ]
            sentences.append(("" if language == "ja" else " ").join(parts) + ("。" if language == "ja" else "."))
        return ("" if language == "ja" else " ").join(sentences)

    return draw_one


def _keywords(draw: Random, real: Sequence[str]) -> str:
    return draw.choice((" ", ", ")).join(draw.choices(_KEYWORDS, k=draw.randint(120, 400)))


def _gibberish(draw: Random, real: Sequence[str]) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(draw.choices(letters, k=draw.randint(2, 12))) for _ in range(draw.randint(150, 500)))


def _numbers(draw: Random, real: Sequence[str]) -> str:
    return "\n".join(" ".join(str(draw.randrange(10**6)) for _ in range(8)) for _ in range(draw.randint(20, 80)))


def _links(draw: Random, real: Sequence[str]) -> str:
    return "\n".join(
        f"https://www.site{draw.randint(1, 999)}.com/p/{draw.getrandbits(40):x}"
        for _ in range(draw.randint(10, 60))
    )


PROSE: dict[str, Draw] = {
    "page furniture": lambda draw, real: _menu(draw, _MENU),
    "ad page": lambda draw, real: _offers(draw, _OFFERS),
    "repeated lines": _repeated_lines,
    "repeated phrase": _repeated_phrase,
    "broken HTML": _broken_html,
    "wrong language": _foreign(("fr", "de", "es", "it", "ru", "ja", "ko")),
    "keywords": _keywords,
    "gibberish": _gibberish,
    "numbers": _numbers,
    "links": _links,
}
CHINESE: dict[str, Draw] = {
    "page furniture": lambda draw, real: _menu(draw, _CHINESE_MENU),
    "ad page": lambda draw, real: _offers(draw, _CHINESE_OFFERS),
    "repeated lines": _repeated_lines,
    "repeated phrase": _repeated_phrase,
    "broken HTML": _broken_html,
    "mojibake": _mojibake,
    "wrong language": _foreign(("ru", "ja", "ko")),
    "numbers": _numbers,
    "links": _links,
}


def _minified(draw: Random, real: Sequence[str]) -> str:
    text = re.sub(
        r"#.*|\"\"\"[\s\S]*?\"\"\"", "", draw.choice([one for one in draw.choices(real, k=20) if len(one) > 6000])
    )
    return re.sub(r"\s*([=+\-*/,:;(){}\[\]<>])\s*", r"\1", re.sub(r"\s+", " ", text))[: draw.randint(3000, 20000)]


def _encoded(draw: Random, real: Sequence[str]) -> str:
    data = draw.randbytes(draw.randint(800, 6000))
    if draw.random() < 0.5:
        return "DATA = '" + base64.b64encode(data).decode() + "'\n"
    rows = [", ".join(f"0x{byte:02x}" for byte in data[i : i + 12]) for i in range(0, len(data), 12)]
    return "static const unsigned char data[] = {\n  " + ",\n  ".join(rows) + "\n};\n"


def _generated(draw: Random, real: Sequence[str]) -> str:
    sign = draw.choice(("# ", "// ", "/* ", "-- "))
    words = (
        "Code generated by protoc-gen-go. DO NOT EDIT.",
        "This file was automatically generated by SWIG.",
        "@generated by codegen, do not modify",
        "AUTO-GENERATED FILE. DO NOT EDIT.",
    )
    return f"{sign}{draw.choice(words)}\n" + draw.choice(real)


def _table(draw: Random, real: Sequence[str]) -> str:
    rows = (", ".join(str(draw.randrange(10**5)) for _ in range(10)) for _ in range(draw.randint(40, 200)))
    return "values = [\n    " + ",\n    ".join(rows) + "\n]\n"


def _repeated_code(draw: Random, real: Sequence[str]) -> str:
    few = [draw.choice(_lines(draw, real)) for _ in range(2)]
    return "\n".join(draw.choice(few) for _ in range(draw.randint(60, 200)))


CODE: dict[str, Draw] = {
    "minified": _minified,
    "encoded bytes": _encoded,
    "generated": _generated,
    "table of numbers": _table,
    "repeated lines": _repeated_code,
}
MATHEMATICS: dict[str, Draw] = {
    "repeated lines": _repeated_lines,
    "repeated phrase": lambda draw, real: _repeated_phrase(draw, real) * 3,
}
