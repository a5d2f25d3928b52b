"""What of a page is furniture by what it calls itself: navigation, advertising, comments, footers."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache


class Part(IntEnum):
    """What an element's tag, class, id and role say that it is."""

    NOTHING = 0
    CONTENT = 1
    """A page's main text, or one of few such parts."""
    FURNITURE = 2
    """Most likely no content; pages also name wrappers of their content so."""
    NEVER = 3
    """No content wherever it stands: consent to cookies, comments, advertising."""
    DETAIL = 4
    """Said about the content and not in it: author, date, tags. Furniture where it is short."""


_WITHOUT = re.compile(
    r"\b(?:has|have|with|without|no|hide|show|is|js)[-_ ]+[a-z]+"
    r"|\b(?:sidebar|nav|menu|toc)[-_](?:left|right)?[-_]?(?:open|visible|hidden|layout|page)\b"
)


def _any(words: str) -> re.Pattern[str]:
    return re.compile(r"(?<![a-z])(?:" + "|".join(words.split()) + r")(?![a-z])")


_NEVER = _any(
    r"cookies? consent gdpr onetrust\S* comments? commentlist "
    r"comment[-_]?(?:list|area|section|form|wrap(?:per)?|body|content) disqus[-_a-z]* respond pinglun ads? adv "
    r"adbox advert(?:s|isement|isements|ising|orial)? adsbygoogle adsense dfp google[-_]?ads? sponsor(?:ed|s)? "
    r"taboola outbrain newsletter subscribe(?:[-_]?form)? subscription paywall popup modal lightbox tooltip skip "
    r"skip[-_]?(?:link|nav|to\S*) skiplink(?:s)? visually[-_]?hidden screen[-_]reader\S* sr[-_]only headerlink "
    r"headeranchor editsection mw[-_]editsection noprint no[-_]print share(?:s|bar|d|daddy)? sharing "
    r"share[-_]?(?:bar|box|buttons?|links|list|this) addthis\S* addtoany\S* bdsharebuttonbox social "
    r"social[-_]?(?:share|links?|icons?|media|bar|buttons?) jump[-_]?link mw[-_]jump[-_]link breadcrumbs? "
    r"crumbs? bread[-_]?nav crumb[-_]?nav mbx weizhi login signin signup qrcode qr[-_]?code erweima linenos? "
    r"line[-_]?numbers? lineno gutter rouge[-_]gutter hljs[-_]ln[-_]numbers copy[-_]?(?:btn|button|code) copybtn "
    r"toolbar toolbox"
)
_FURNITURE = _any(
    r"nav navi navbar navigation navheader navfooter navbox topnav subnav mainnav sidenav globalnav "
    r"nav[-_]?(?:bar|links|menu|wrap|list|tree) menus? menubar submenu dropdown sidebar "
    r"side[-_]?(?:bar|nav|col|column|menu|box) sidebars? sphinxsidebar aside rail footer foot "
    r"bottom[-_]?(?:bar|nav|links)? site[-_]?(?:footer|header|nav) masthead topbar "
    r"top[-_]?(?:bar|nav|menu|links) header page[-_]?header global[-_]?header banner promo(?:s|tion|tions|ted)? "
    r"related related[-_]?(?:posts?|articles?|links?|content|stories|news|items|topics) "
    r"recommend(?:ed|s|ations?)? recommend[-_]?(?:list|box|posts|articles) suggest(?:ed|ions?) trending popular "
    r"most[-_]?(?:read|popular|viewed) hot hot[-_]?(?:list|news|posts?|articles?|topics?) hotnews paihang "
    r"rank(?:ing)? read[-_]?(?:next|more|also) "
    r"more[-_]?(?:articles?|posts?|news|stories|from|links|like[-_]this) also[-_]like you[-_]may pagination "
    r"pager paging page[-_]?(?:nav|links|numbers|navi) pagenav post[-_]?nav(?:igation)? prev(?:ious)?[-_]?next "
    r"next[-_]?prev prevnext pn[-_]?links? shangxia toc table[-_]?of[-_]?contents minitoc "
    r"(?<![-_])contents(?![-_]) toctree[-_]wrapper contents[-_]?table "
    r"catlinks widgets? widget[-_]?area tag[-_]?cloud tagcloud archives? blogroll friend[-_]?links? friendlinks? "
    r"youqing copyright(?:s)? beian legal colophon disclaimer search search[-_]?(?:box|bar|form) searchbox "
    r"language[-_]?(?:switcher|selector|list) lang[-_]?(?:switch|menu|nav) feedback rating "
    r"vote votes author[-_]?(?:bio|box|info|card) about[-_]?(?:author|the[-_]author|me) bio profile[-_]?card "
    r"user[-_]?(?:card|info|panel) blogger[-_]?\S* cta call[-_]to[-_]action teaser(?:s)? notification "
    r"alert[-_]?bar announcement offcanvas drawer overlay flyout contribut(?:e|ors) "
    r"edit[-_]?(?:link|page|this[-_]page) rst[-_]versions on[-_]this[-_]page quick[-_]?links "
    r"useful[-_]?links relatedlinks see[-_]?more jumbotron statcounter counter stats"
)
_DETAIL = _any(
    r"meta byline author dateline date time timestamp posted published post[-_]?(?:meta|info|date|by|tags) "
    r"entry[-_]?(?:meta|info|date|footer|utility) article[-_]?(?:meta|info|date|tags|source) info infos postinfo "
    r"tags tag[-_]?list tagged categories category cat[-_]links laiyuan editor read[-_]?(?:time|count)s? views? "
    r"breadcrumb subtitle[-_]?info"
)
_CONTENT = _any(
    r"article[-_]?(?:body|content|text|main|detail)? articlebody articlecontent entry[-_]?(?:content|body|text) "
    r"post[-_]?(?:content|body|text|entry|main) postbody postcontent "
    r"(?:blog|news|story|main|page|body|text|doc|wiki|topic|md|rich)[-_]?(?:content|body|text|article|main) "
    r"storybody markdown[-_]?body mw[-_]parser[-_]output mw[-_]content[-_]text body[-_]?content "
    r"content[-_]?(?:main|body|area|detail|text|inner)? neirong zhengwen main rst[-_]content"
)
_WRAPPERS = _any(
    r"wrap wrapper wrapper\S* container layout page site root app outer grid row columns? main content body"
)
_TAGS = {
    "nav": Part.FURNITURE, "aside": Part.FURNITURE, "footer": Part.FURNITURE, "header": Part.FURNITURE,
    "menu": Part.FURNITURE, "main": Part.CONTENT, "article": Part.CONTENT, "form": Part.FURNITURE,
    "time": Part.DETAIL,
}  # fmt: skip
_ROLES = {
    "navigation": Part.FURNITURE, "banner": Part.FURNITURE, "contentinfo": Part.FURNITURE, "search": Part.NEVER,
    "complementary": Part.FURNITURE, "dialog": Part.NEVER, "alertdialog": Part.NEVER, "menu": Part.FURNITURE,
    "menubar": Part.FURNITURE, "toolbar": Part.NEVER, "tooltip": Part.NEVER, "alert": Part.FURNITURE,
    "main": Part.CONTENT, "article": Part.CONTENT, "articlebody": Part.CONTENT, "doc-toc": Part.FURNITURE,
}  # fmt: skip


def part_of(tag: str, hint: str, role: str) -> Part:
    """What an element is for by its tag, its class and id (in lower case) and its role."""
    if role and (told := _ROLES.get(role.lower())) is not None:
        return told
    named = _named(hint) if hint else Part.NOTHING
    if named is Part.NOTHING or (named is Part.CONTENT and tag in ("nav", "aside", "footer")):
        return _TAGS.get(tag, Part.NOTHING)
    return named


@lru_cache(1 << 14)
def _named(hint: str) -> Part:
    hint = _WITHOUT.sub(" ", hint)
    if _NEVER.search(hint):
        return Part.NEVER
    if _FURNITURE.search(hint):
        return Part.NOTHING if _WRAPPERS.search(hint) and _CONTENT.search(hint) else Part.FURNITURE
    if _DETAIL.search(hint) and not _CONTENT.search(hint):
        return Part.DETAIL
    return Part.CONTENT if _CONTENT.search(hint) else Part.NOTHING
