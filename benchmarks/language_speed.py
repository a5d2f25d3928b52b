"""MB per CPU-second of each operator on whole documents, and of libraries that convert Chinese scripts.

    python benchmarks/language_speed.py --text FOLDER

FOLDER holds `*.jsonl.gz` with fields `kind`, `language` and `text`. Libraries for scripts are measured where they
can be imported (opencc, zhconv, zhconv_rs): on words of which one simplified character stands for several
traditional ones, and on the way of traditional text to simplified and back.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stoker.data.document import Document
from stoker.data.operators import operators_of
from stoker.recipe import Cleaning, Source

_PAIRS = """
头发 頭髮 发展 發展 皇后 皇后 以后 以後 面子 面子 干净 乾淨 干部 幹部 树干 樹幹 干涉 干涉
乾坤 乾坤 里程 里程 台风 颱風 只有 只有 一只 一隻 系统 系統 关系 關係 联系 聯繫 复杂 複雜
复习 複習 恢复 恢復 钟表 鐘錶 钟情 鍾情 斗争 鬥爭 北斗 北斗 山谷 山谷 谷物 穀物 松树 松樹
轻松 輕鬆 特征 特徵 征服 征服 制度 制度 制造 製造 出发 出發 理发 理髮 一出戏 一齣戲 丑时 丑時
丑陋 醜陋 范围 範圍 范仲淹 范仲淹 丰富 豐富 丰采 丰采 公历 公曆 历史 歷史 词汇 詞彙 汇款 匯款
获得 獲得 收获 收穫 借口 藉口 借款 借款 困难 困難 困倦 睏倦 了结 了結 尽管 儘管 尽力 盡力
卷曲 捲曲 试卷 試卷 千克 千克 克服 克服 姜太公 姜太公 生姜 生薑 准备 準備 批准 批准 签名 簽名
牙签 牙籤 余下 餘下 占卜 占卜 云彩 雲彩 人云亦云 人云亦云 几乎 幾乎 茶几 茶几 向导 嚮導 方向 方向
游泳 游泳 郁闷 鬱悶 浓郁 濃郁 御用 御用 防御 防禦 愿望 願望 岳父 岳父 山岳 山嶽 周围 周圍
划船 划船 计划 計劃 咸味 鹹味 老少咸宜 老少咸宜 胡须 鬍鬚 必须 必須 胡说 胡說 蒙骗 矇騙 蒙古 蒙古
冲突 衝突 冲洗 沖洗 仇恨 仇恨 暗自 暗自 抑郁 抑鬱 回来 回來 迂回 迂迴 伙伴 夥伴 伙食 伙食
"""
WORDS = _PAIRS.split()
TRADITIONAL = ("libreoffice-help-zh-tw", "chinese-poetry")
Convert = Callable[[str], str]


def converters() -> dict[str, tuple[Convert, Convert]]:
    """(to simplified, to traditional) of each library that can be imported."""
    found: dict[str, tuple[Convert, Convert]] = {}
    for name in ("opencc", "zhconv", "zhconv_rs"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        if name == "opencc":
            found[name] = library.OpenCC("t2s").convert, library.OpenCC("s2t").convert
        else:
            convert = library.convert if name == "zhconv" else library.zhconv
            found[name] = partial(_by, convert, "zh-hans"), partial(_by, convert, "zh-hant")
    return found


def _by(convert: Callable[[str, str], str], variant: str, text: str) -> str:
    return convert(text, variant)


def scripts(texts: dict[str, str]) -> None:
    """The table of libraries."""
    print("| library | words right | text | characters that come back | MB per CPU-second there | back |")
    print("|---|---|---|---|---|---|")
    pairs = list(zip(WORDS[::2], WORDS[1::2], strict=True))
    for name, (simplify, back) in converters().items():
        right = sum((back(simple) == full) + (simplify(full) == simple) for simple, full in pairs)
        for text_name in TRADITIONAL:
            text = texts[text_name][:1_500_000]
            start = time.process_time()
            simplified = simplify(text)
            middle = time.process_time()
            returned = back(simplified)
            end = time.process_time()
            size = len(text.encode()) / 1e6
            same = "not comparable"
            if len(returned) == len(text):
                same = f"{sum(a == b for a, b in zip(text, returned, strict=True)) / len(text):.4f}"
            speeds = f"{size / (middle - start):.1f} | {size / (end - middle):.1f}"
            print(f"| {name} | {right} of {2 * len(pairs)} | {text_name} | {same} | {speeds} |")


def operators(documents: dict[str, list[str]]) -> None:
    """The table of operators."""
    source = Source(name="s", paths=("x",))
    chains = {
        "": operators_of(source, Cleaning()),
        " (to simplified)": [
            one for one in operators_of(source, Cleaning(script="simplified")) if one.name == "script"
        ],
    }
    rows: dict[str, list[str]] = {}
    for texts in documents.values():
        size = sum(len(text.encode()) for text in texts) / 1e6
        for suffix, chain in chains.items():
            for operator in chain:
                start = time.process_time()
                for text in texts:
                    operator(Document("s", "prose", None, "1", "f", "file", text))
                seconds = time.process_time() - start
                rows.setdefault(operator.name + suffix, []).append(f"{size / seconds:.1f}")
    print("\n| operator | " + " | ".join(documents) + " |\n|" + "---|" * (len(documents) + 1))
    for name, speeds in rows.items():
        print(f"| {name} | " + " | ".join(speeds) + " |")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    given = parser.parse_args()
    documents: dict[str, list[str]] = {}
    for name in ("python3-11-doc", "rust-rfcs", "pingcap-docs-cn", "d2l-zh", *TRADITIONAL):
        with gzip.open(given.text / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
            documents[name] = [json.loads(line)["text"] for line in stream]
    scripts({name: "\n".join(documents[name]) for name in TRADITIONAL})
    warm = {name: texts[:3] for name, texts in documents.items()}
    operators_of(Source(name="s", paths=("x",)), Cleaning())
    for texts in warm.values():
        for text in texts:
            for operator in operators_of(Source(name="s", paths=("x",)), Cleaning()):
                operator(Document("s", "prose", None, "1", "f", "file", text))
    operators({name: texts[: len(texts) // 4] for name, texts in documents.items()})


if __name__ == "__main__":
    main()
