"""The characters that East Asian text is mostly made of: what tells a right decoding from a wrong one."""

from __future__ import annotations

# The most frequent characters of Chinese (both scripts), of Japanese and of Korean, and their punctuation.
FREQUENT = frozenset(
    "的一是不了在人有我他这中大来上个国到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么"
    "心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知民样现"
    "分将外但身些与高意进把法此实回二理美点月明其种声全工己话儿者向情部正名定女问力机给等几很业最间新什打便位"
    "因重被走电四第门相次东政海口使教西再平真听世气信北少关并内加化由却代军产入先山五太水万市眼体别处总才场师"
    "书比住员九笑性通目华报立马命张活难神数件安表原车白应路期叫死常提感金何更反合放做系计或司利受光王果亲界及"
    "今京务制解各任至清物台象记边共风战干接它许八特觉望直服毛林题建南度统色字请交爱让认算论百吃义科怎元社术结"
    "這個來說們為時國會對學後過沒還發當樣現經動長見開頭無從兩將與進實點種聲話兒問機給幾業間麼電門東氣關並產萬"
    "體處總場師書員華報馬難數車應親務記邊戰許覺題統請愛讓認論義術結買賣讀寫聽錢錯長風飛龍點裡著於臺灣質東西"
    "のにはをたがでてとしれさあるいもなかこらりっすまくよきんそうえわみけだめアイルンースリトラ"
    "이다는을의가에고하지한도로기사어나그리자들은인있것수대시해정여일아제보안전상부장서과주"
    "，。！？；：、“”‘’（）《》「」『』【】…—·　・～①②③０１２３４５６７８９％"
)


def likeness(text: str) -> float:
    """Share of the characters beyond ASCII that are frequent in East Asian text; of the first 20,000."""
    beyond = [character for character in text[:20000] if character > "\x7f"]
    if not beyond:
        return 0.0
    return sum(character in FREQUENT for character in beyond) / len(beyond)
