"""A text as words that can be searched, in any script."""

import re
import unicodedata

# Scripts without spaces between words: each letter counts as one.
_ALONE = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_ALONE}]|(?:(?![{_ALONE}])\w)+|[\u2190-\u2bff\U0001f000-\U0001faff]")


def words(text: str) -> list[str]:
    """The words of a text, as they are compared: without case, width and accents.

    Letters of scripts that put no spaces between words, and pictures, are words of their own.

    Args:
      text: any text.

    Returns:
      Its words in order.
    """
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return _WORD.findall(unicodedata.normalize("NFC", plain))
