"""How MySQL's own conversion tables differ from Python's codecs (data).

Per character set: the Python codec closest to it, and what the server makes of codes that the codec reads
otherwise or not at all: consecutive characters from a code on. Codes without a character, which read as `?`, are not
listed where the codec has none either. Asked of MySQL 8.0 (`CONVERT(x USING utf8mb4)` of every code);
`tests/binlog/test_charsets.py` asks every server again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

Tables: TypeAlias = Mapping[str, tuple[str, Mapping[int, str]]]

SINGLE_BYTE: Final[Tables] = {
    "latin2": ("iso8859-2", {}),
    "latin5": ("iso8859-9", {}),
    "latin7": ("iso8859-13", {}),
    "greek": ("iso8859-7", {0xA1: "\u02bd\u02bc", 0xA4: "??", 0xAA: "?"}),
    "hebrew": ("iso8859-8", {0xAF: "\u203e"}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "\u207f\xb2"}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", {
        0x8A: "?",
        0x8F: "?",
        0x98: "?",
        0x9A: "?",
        0x9F: "?",
        0xAA: "?",
        0xC0: "?",
        0xFF: "?",
    }),
    "cp1257": ("cp1257", {}),
    "koi8r": ("koi8-r", {}),
    "koi8u": ("koi8-u", {0x95: "\u2022"}),
    "tis620": ("tis-620", {
        0xA0: "\ufffd",
        0xDB: "\ufffd\ufffd\ufffd\ufffd",
        0xFC: "\ufffd\ufffd\ufffd\ufffd",
    }),
    "macroman": ("mac-roman", {}),
    "macce": ("mac-latin2", {}),
    "latin1": ("cp1252", {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f\x90", 0x9D: "\x9d"}),
    "dec8": ("latin-1", {
        0xA4: "?",
        0xA6: "?",
        0xA8: "\xa4",
        0xAC: "????",
        0xB4: "?",
        0xB8: "?",
        0xBE: "?",
        0xD0: "?",
        0xD7: "\u0152",
        0xDD: "\u0178?",
        0xF0: "?",
        0xF7: "\u0153",
        0xFD: "\xff??",
    }),
    "hp8": ("ascii", {
        0x80: (
            "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94"
            "\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xc0\xc2\xc8\xca\xcb\xce\xcf\xb4"
            "\u02cb\u02c6\xa8\u02dc\xd9\xdb\u20a4\xaf\xdd\xfd\xb0\xc7\xe7\xd1\xf1\xa1\xbf\xa4\xa3"
            "\xa5\xa7\u0192\xa2\xe2\xea\xf4\xfb\xe1\xe9\xf3\xfa\xe0\xe8\xf2\xf9\xe4\xeb\xf6\xfc"
            "\xc5\xee\xd8\xc6\xe5\xed\xf8\xe6\xc4\xec\xd6\xdc\xc9\xef\xdf\xd4\xc1\xc3\xe3\xd0\xf0"
            "\xcd\xcc\xd3\xd2\xd5\xf5\u0160\u0161\xda\u0178\xff\xde\xfe\xb7\xb5\xb6\xbe\u2014\xbc"
            "\xbd\xaa\xba\xab\u25a0\xbb\xb1"
        ),
    }),
    "swe7": ("ascii", {
        0x40: "\xc9",
        0x5B: "\xc4\xd6\xc5\xdc",
        0x60: "\xe9",
        0x7B: "\xe4\xf6\xe5\xfc?",
    }),
    "armscii8": ("ascii", {
        0x80: (
            "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94"
            "\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\u2741\xa7\u0589)(\xbb\xab\u2014."
            "\u055d,-\u055f\u2026\u055c\u055b\u055e\u0531\u0561\u0532\u0562\u0533\u0563\u0534"
            "\u0564\u0535\u0565\u0536\u0566\u0537\u0567\u0538\u0568\u0539\u0569\u053a\u056a\u053b"
            "\u056b\u053c\u056c\u053d\u056d\u053e\u056e\u053f\u056f\u0540\u0570\u0541\u0571\u0542"
            "\u0572\u0543\u0573\u0544\u0574\u0545\u0575\u0546\u0576\u0547\u0577\u0548\u0578\u0549"
            "\u0579\u054a\u057a\u054b\u057b\u054c\u057c\u054d\u057d\u054e\u057e\u054f\u057f\u0550"
            "\u0580\u0551\u0581\u0552\u0582\u0553\u0583\u0554\u0584\u0555\u0585\u0556\u0586\u2019"
            "'"
        ),
    }),
    "keybcs2": ("ascii", {
        0x80: (
            "\u010c\xfc\xe9\u010f\xe4\u010e\u0164\u010d\u011b\u011a\u0139\xcd\u013e\u013a\xc4\xc1"
            "\xc9\u017e\u017d\xf4\xf6\xd3\u016f\xda\xfd\xd6\xdc\u0160\u013d\xdd\u0158\u0165\xe1"
            "\xed\xf3\xfa\u0148\u0147\u016e\xd4\u0161\u0159\u0155\u0154\xbc\xa1\xab\xbb\u2591"
            "\u2592\u2593\u2502\u2524\u2561\u2562\u2556\u2555\u2563\u2551\u2557\u255d\u255c\u255b"
            "\u2510\u2514\u2534\u252c\u251c\u2500\u253c\u255e\u255f\u255a\u2554\u2569\u2566\u2560"
            "\u2550\u256c\u2567\u2568\u2564\u2565\u2559\u2558\u2552\u2553\u256b\u256a\u2518\u250c"
            "\u2588\u2584\u258c\u2590\u2580\u03b1\xdf\u0393\u03c0\u03a3\u03c3\xb5\u03c4\u03a6"
            "\u0398\u03a9\u03b4\u221e\u03c6\u03b5\u2229\u2261\xb1\u2265\u2264\u2320\u2321\xf7"
            "\u2248\xb0\u2219\xb7\u221a\u207f\xb2\u25a0\xa0"
        ),
    }),
    "geostd8": ("ascii", {
        0x80: "\u20ac",
        0x82: "\u201a",
        0x84: "\u201e\u2026\u2020\u2021",
        0x89: "\u2030",
        0x8B: "\u2039",
        0x91: "\u2018\u2019\u201c\u201d\u2022\u2013\u2014",
        0x9B: "\u203a",
        0xA0: (
            "\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf\xb0\xb1\xb2\xb3\xb4"
            "\xb5\xb6\xb7\xb8\xb9\xba\xbb\xbc\xbd\xbe\xbf\u10d0\u10d1\u10d2\u10d3\u10d4\u10d5"
            "\u10d6\u10f1\u10d7\u10d8\u10d9\u10da\u10db\u10dc\u10f2\u10dd\u10de\u10df\u10e0\u10e1"
            "\u10e2\u10f3\u10e3\u10e4\u10e5\u10e6\u10e7\u10e8\u10e9\u10ea\u10eb\u10ec\u10ed\u10ee"
            "\u10f4\u10ef\u10f0\u10f5"
        ),
        0xFD: "\u2116",
    }),
}

MULTI_BYTE: Final[Tables] = {
    "ujis": ("euc-jp", {0xA1C0: "\\"}),
    "eucjpms": ("euc-jp", {
        0xA1C1: "\uff5e\u2225",
        0xA1DD: "\uff0d",
        0xA1F1: "\uffe0\uffe1",
        0xA2CC: "\uffe2",
        0xADA1: (
            "\u2460\u2461\u2462\u2463\u2464\u2465\u2466\u2467\u2468\u2469\u246a\u246b\u246c\u246d"
            "\u246e\u246f\u2470\u2471\u2472\u2473\u2160\u2161\u2162\u2163\u2164\u2165\u2166\u2167"
            "\u2168\u2169"
        ),
        0xADC0: (
            "\u3349\u3314\u3322\u334d\u3318\u3327\u3303\u3336\u3351\u3357\u330d\u3326\u3323\u332b"
            "\u334a\u333b\u339c\u339d\u339e\u338e\u338f\u33c4\u33a1"
        ),
        0xADDF: (
            "\u337b\u301d\u301f\u2116\u33cd\u2121\u32a4\u32a5\u32a6\u32a7\u32a8\u3231\u3232\u3239"
            "\u337e\u337d\u337c\u2252\u2261\u222b\u222e\u2211\u221a\u22a5\u2220\u221f\u22bf\u2235"
            "\u2229\u222a"
        ),
        0x8FA2B7: "\uff5e",
        0x8FA2C3: "\uffe4",
        0x8FF3F3: "\u2170\u2171\u2172\u2173\u2174\u2175\u2176\u2177\u2178\u2179\u2160\u2161",
        0x8FF4A1: (
            "\u2162\u2163\u2164\u2165\u2166\u2167\u2168\u2169\uff07\uff02\u3231\u2116\u2121\u70bb"
            "\u4efc\u50f4\u51ec\u5307\u5324\ufa0e\u548a\u5759\ufa0f\ufa10\u589e\u5bec\u5cf5\u5d53"
            "\ufa11\u5fb7\u6085\u6120\u654e\u663b\u6665\ufa12\uf929\u6801\ufa13\ufa14\u6a6b\u6ae2"
            "\u6df8\u6df2\u7028\ufa15\ufa16\u7501\u7682\u769e\ufa17\u7930\ufa18\ufa19\ufa1a\ufa1b"
            "\u7ae7\ufa1c\ufa1d\u7da0\u7dd6\ufa1e\u8362\ufa1f\u85b0\ufa20\ufa21\u8807\ufa22\u8b7f"
            "\u8cf4\u8d76\ufa23\ufa24\ufa25\u90de\ufa26\u9115\ufa27\ufa28\u9592\uf9dc\ufa29\u973b"
            "\u974d\u9751\ufa2a\ufa2b\ufa2c\u999e\u9ad9\u9b72\ufa2d\u9ed1"
        ),
    }),
    "euckr": ("cp949", {}),
    "cp932": ("cp932", {}),
    "sjis": ("shift_jis", {0x815F: "\\"}),
    "big5": ("big5", {
        0xA15A: "\ufffd",
        0xA1C3: "\ufffd",
        0xA1C5: "\ufffd",
        0xA1FE: "\ufffd",
        0xA240: "\ufffd",
        0xA2CC: "\ufffd",
        0xA2CE: "\ufffd",
        0xF9D6: "\u7881\u92b9\u88cf\u58bb\u6052\u7ca7\u5afa",
    }),
    "gbk": ("gbk", {}),
    "gb2312": ("gb2312", {}),
    "gb18030": ("gb18030", {0xA8BC: "\u1e3f", 0x8135F437: "\ue7c7"}),
}

UNICODE: Final[Mapping[str, str]] = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
