"""Line cleaning: how much planted furniture goes, and how much of clean text, in one run.

    python benchmarks/language_lines.py --text FOLDER [--themes WHEELS]

FOLDER holds `*.jsonl.gz` with fields `kind`, `language` and `text`. Clean text is that of its prose, as it is. The
furniture is whole headers, bars and footers as sites of several makes have them, planted into paragraphs of that
text. The words of `furniture.txt` were completed from the first lists ("looked at") until their lines went, then
from the second ("others") once; the messages of two generators of sites played no part in writing it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections import Counter
from pathlib import Path

from stoker.data.line_cleaning import clean_lines

BUILDING_ENGLISH = """
Skip to main content
Home
News
About us
Contact
Log in
Subscribe
--
Menu
Home | Shop | Blog | About | Contact
Search
--
From our sponsors
Advertisement
--
Share this article
Share on Facebook
Share on Twitter
Share via Email
Copy link
--
Share:
Facebook
Twitter
LinkedIn
WhatsApp
--
Tweet
Pin
Share
--
Posted in Uncategorized
Tagged with python, web
Leave a comment
--
Related posts
Read more »
--
← Previous post
Next post →
--
This website uses cookies to improve your experience. We'll assume you're ok with this.
Accept
Reject
Read More
--
We use cookies and similar technologies to give you the best experience.
Accept all cookies
Manage preferences
--
By continuing to use this site, you agree to our use of cookies.
--
Sign up for our newsletter
Get the latest news in your inbox
Enter your email address
--
Privacy Policy
Terms of Service
Cookie Policy
Sitemap
--
Privacy | Terms | Cookies | Accessibility | Help
--
© 2023 Example Media Group Ltd. All rights reserved.
--
Copyright © 2019 The Daily Planet
Powered by WordPress
--
Follow us on Instagram
Like us on Facebook
--
Back to top
--
You must be logged in to post a comment.
--
Your email address will not be published. Required fields are marked *
--
Please enable JavaScript to view the comments powered by Disqus.
--
Log in or register to post comments
--
3 Comments
Reply
--
Filed Under: Politics, World
--
You may also like
--
Most read
--
Download our app
Available on the App Store
Get it on Google Play
--
View all posts by admin
--
Add to cart
Add to wishlist
--
Home » Blog » 2021 » March
--
Jump to navigation
Jump to search
--
Edit this page
Report abuse
--
Print this page
Email this article
--
Don't miss our newsletter
Unsubscribe at any time
--
Terms and conditions · Privacy policy · Imprint · Contact
"""
BUILDING_CHINESE = """
首页
新闻
财经
体育
登录
注册
--
首页 > 新闻中心 > 正文
--
设为首页 | 加入收藏 | 联系我们
--
分享到：
微信
微博
QQ空间
--
分享到微信朋友圈
--
扫描二维码关注我们的公众号
--
责任编辑：张三
--
【责任编辑:李娜】
--
上一篇：春天的第一场雨
下一篇：夏天的河
--
相关阅读
--
版权所有 © 2015-2023 某某网络科技有限公司
--
京ICP备12345678号-2
京公网安备 11010802020000号
--
免责声明：本文仅代表作者个人观点，与本网无关。
--
未经授权，禁止转载
--
本网站使用Cookie以改善您的浏览体验。
--
发表评论
登录后才能评论
--
0条评论
--
点赞 收藏 评论 转发
--
返回顶部
--
返回首页
--
打开APP阅读全文
--
展开阅读全文
--
关于我们 | 广告服务 | 诚聘英才 | 联系我们 | 网站地图
--
Copyright © 2020 某某网 All Rights Reserved
--
猜你喜欢
--
热门文章
最新文章
--
您还没有登录，请先登录
--
立即下载客户端
--
举报电话：010-12345678
--
增值电信业务经营许可证：京B2-20200001
--
字号：大 中 小
--
打印 关闭 收藏
--
阅读量：1024
--
微信扫一扫，分享到朋友圈
--
关注我们的微博
--
友情链接：
--
声明：本文由入驻作者撰写，观点仅代表作者本人。
--
转载请注明出处
--
用户协议 隐私政策
--
忘记密码？
--
加载更多
--
意见反馈
帮助中心
--
大家都在看
"""
JUDGING_ENGLISH = """
Toggle navigation
Products
Pricing
Blog
Sign in
--
Accessibility links
Skip to content
--
Home / News / Technology
--
Share this:
Click to share on Twitter (Opens in new window)
Click to share on Facebook (Opens in new window)
--
Like this:
Like Loading...
--
Related
Older posts
--
Leave a Reply
Cancel reply
--
This site uses Akismet to reduce spam. Learn how your comment data is processed.
--
Proudly powered by WordPress | Theme: Twenty Sixteen
--
We and our partners use cookies on this site
Accept all
Reject all
Cookie settings
--
We value your privacy
Manage options
--
Subscribe to our mailing list
--
Join our newsletter
--
Get our top stories delivered by email
--
Follow us on Twitter
Find us on YouTube
--
Most viewed
Most shared
--
Recommended articles
--
12 comments
Add comment
--
View comments
Show more comments
--
Report this comment
Reply
--
Contact us | Advertise with us | Careers | Site map
--
Terms of Use
Privacy Notice
Do Not Sell My Personal Information
--
© 2021 The Example Times Company
--
Copyright 2018, Example Press. All Rights Reserved.
--
Advertisement - story continues below
--
Sponsored
--
Print
Save
Email
--
Create an account
Forgot password?
--
Sign in with Google
Sign in with Facebook
--
Return to top
--
Next: Installation
Previous: Overview
--
Edit on GitHub
--
Free shipping on orders over $50
Shopping cart
Checkout
--
Filter by
Sort by
--
Your cart is empty
--
Go to page
First
Last
--
Read the full story
--
Tags: travel, food, Italy
--
Categories: Recipes
--
Your browser does not support the video tag.
--
JavaScript must be enabled to view this page
--
Show more
Show less
--
Follow
Message
Share profile
"""
JUDGING_CHINESE = """
网站首页
公司简介
产品展示
在线留言
联系我们
--
您现在的位置：首页 > 政务公开 > 通知公告
--
【字体：大 中 小】
打印本页
--
浏览次数：356
--
来源：本站原创 发布时间：2021-03-05
--
分享到: QQ好友 新浪微博 豆瓣网
--
微信扫码分享
--
扫码关注微信公众号
--
长按二维码识别关注
--
上一条：关于放假的通知
下一条：关于招聘的公告
--
相关链接
--
主办单位：某某市人民政府办公室
--
备案号：沪ICP备09012345号
--
版权所有：某某大学 地址：某某市某某路1号
--
网站声明
网站地图
联系方式
--
本站所有资源均来自网络，如有侵权请联系删除
--
文章转载请注明来源
--
本文为原创文章，未经许可不得转载
--
赞 (12)
打赏
--
已有 3 人评论
--
最新回复
--
回复 举报 只看该作者
--
发表于 2015-3-4 10:20
--
游客，您需要登录才可以回帖
--
登录 | 注册
--
QQ登录
微信登录
--
点击加载更多
--
查看全部评论
--
为您推荐
--
热门搜索
--
热搜榜
热门标签
--
广告
--
下载APP，阅读更多精彩内容
--
用微信扫描二维码
--
关于本站
广告合作
隐私声明
--
不良信息举报邮箱
--
营业执照
--
互联网药品信息服务资格证书
--
回到页首
--
切换到电脑版
--
加入购物车
立即购买
--
收藏本文
--
责编：王小明
--
文章标签：
--
本站使用 Cookies 来提升体验
--
同意
拒绝
"""
SIGNS = ("★★★★★", "◆ ◆ ◆", "►►►", "☆☆☆☆☆☆", "▲▼▲▼")
PAGES = (
    ("{0}", "The Voyage of the Northern Star"),
    ("- {0} -", "第三章　山河"),
    ("Page {0} of 90", "Annual report"),
)


def blocks(text: str) -> list[list[str]]:
    """The blocks of a list above."""
    return [block.strip().split("\n") for block in text.split("--\n")]


def themes(folder: Path) -> dict[str, list[list[str]]]:
    """What two generators of sites write on their pages, in threes as they stand in bars and footers.

    Messages of Nikola's base theme and of mkdocs-material, in English and simplified Chinese; nobody looked at them
    for the rules.
    """
    import ast
    import re

    found: dict[str, list[list[str]]] = {}
    for language, nikola, material in (("en", "en", "en"), ("zh", "zh_cn", "zh")):
        tree = ast.parse((folder / f"nikola/data/themes/base/messages/messages_{nikola}.py").read_text("utf-8"))
        (table,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
        pairs = ast.literal_eval(table).items()
        page = (folder / f"material/templates/partials/languages/{material}.html").read_text("utf-8")
        lines = [value or key for key, value in pairs]
        lines += [
            value
            for key, value in re.findall(r'^\s*"([\w.]+)": "([^"]*)"', page, re.MULTILINE)
            if not key.startswith(("language", "search.config", "direction", "search.result", "readtime"))
        ]
        lines = [re.sub(r"%[sd]|#|\{\w+\}", "2020", line).strip() for line in lines]
        lines = [line for line in dict.fromkeys(lines) if len(line) > 1]
        found[language] = [lines[at : at + 3] for at in range(0, len(lines), 3)]
    return found


def planted(paragraphs: list[str], draw: random.Random, of: list[list[str]]) -> tuple[str, list[str]]:
    """A page of twelve paragraphs with four blocks between them, and the lines that were planted."""
    page = draw.sample(paragraphs, 12)
    lines: list[str] = []
    for block in draw.sample(of, 4):
        lines += block
        page.insert(draw.randrange(len(page) + 1), "\n".join(block))
    return "\n\n".join(page), lines


def book(paragraphs: list[str], draw: random.Random) -> tuple[str, list[str]]:
    """Eight pages of a book, each with its number and its head."""
    number, head = draw.choice(PAGES)
    out, lines = [], []
    for page in range(draw.randrange(1, 60), 68)[:8]:
        top = [head, number.format(page)]
        lines += top
        out.append("\n".join(top) + "\n\n" + "\n".join(draw.sample(paragraphs, 10)))
    return "\n\n".join(out), lines


def counted(pages: list[tuple[str, list[str]]]) -> tuple[float, Counter[str]]:
    """(share of the planted lines that went, those that stayed)."""
    stayed: Counter[str] = Counter()
    total = 0
    for text, lines in pages:
        left = Counter(clean_lines(text).text.split("\n"))
        total += len(lines)
        stayed.update(line for line in lines if left[line])
    return 1 - sum(stayed.values()) / total, stayed


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--themes", type=Path, help="folder with nikola/ and material/ out of their wheels")
    given = parser.parse_args()
    paragraphs: dict[str, list[str]] = {"en": [], "zh": []}
    print("| clean text | lines | removed | share | MB per CPU-second |\n|---|---|---|---|---|")
    for path in sorted(given.text.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            documents = [json.loads(line) for line in stream][1::2]  # the other half was looked at for the rules
        if documents[0]["kind"] != "prose":
            continue
        start = time.process_time()
        cleaned = [clean_lines(document["text"]) for document in documents]
        seconds = time.process_time() - start
        lines, removed = sum(one.lines for one in cleaned), sum(sum(one.removed.values()) for one in cleaned)
        size = sum(len(document["text"].encode()) for document in documents) / 1e6
        print(f"| {path.name[:-9]} | {lines} | {removed} | {removed / lines:.5f} | {size / seconds:.1f} |")
        language = "en" if documents[0]["language"].startswith("en") else "zh"
        paragraphs[language] += [
            line for document in documents for line in document["text"].split("\n") if 60 < len(line) < 400
        ]
    draw = random.Random("furniture")
    print("\n| planted | lines that went |\n|---|---|")
    for name, language, blocks_of in (
        ("English pages, looked at", "en", BUILDING_ENGLISH),
        ("Chinese pages, looked at", "zh", BUILDING_CHINESE),
        ("English pages, others", "en", JUDGING_ENGLISH),
        ("Chinese pages, others", "zh", JUDGING_CHINESE),
    ):
        share, stayed = counted([planted(paragraphs[language], draw, blocks(blocks_of)) for _ in range(200)])
        print(f"| {name} | {share:.4f} |")
        print("stayed:", [line for line, _ in stayed.most_common()])
    for language, of in themes(given.themes).items() if given.themes else ():
        share, stayed = counted([planted(paragraphs[language], draw, of) for _ in range(200)])
        print(f"| messages of themes, {language} | {share:.4f} |")
        print("stayed:", [line for line, _ in stayed.most_common()])
    for name, pages in (
        ("pages of books", [book(paragraphs[draw.choice(["en", "zh"])], draw) for _ in range(60)]),
        ("rows of signs", [planted(paragraphs["en"], draw, [[one] for one in SIGNS]) for _ in range(30)]),
    ):
        share, stayed = counted(pages)
        print(f"| {name} | {share:.4f} |")
        print("stayed:", [line for line, _ in stayed.most_common(8)])


if __name__ == "__main__":
    main()
