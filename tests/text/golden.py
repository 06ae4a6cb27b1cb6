#!/usr/bin/env python3
"""What Hugging Face's `tokenizers` makes of hostile strings, for golden_test.cpp: small tokenizers with the settings of each family,
and their ids. Needs `pip install tokenizers`; run it in the root of the tree, and commit what it writes:

    python3 tests/text/golden.py        # tests/text/golden/*.json
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, __version__, decoders, models, normalizers, pre_tokenizers, trainers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog isn't amused; the fox doesn't care, and they'll do it again.",
    "def main(argc, argv):\n    for i in range(10):\n        print(i, argv[i])\n\n    return 0\n",
    "Über den Wolken muß die Freiheit wohl grenzenlos sein. Naïve café, jalapeño, Ångström, œuvre.",
    "日本語のテキストと漢字。こんにちは世界。 한국어 텍스트. Привет, мир! مرحبا بالعالم. שלום עולם. สวัสดี नमस्ते",
    "In 2024 there were 1234567 tokens, 3.14159 of them round; 100% of 42 were 7 x 6.",
    "Emoji: 😀 😃 👩\u200d👩\u200d👧 🇩🇪 👍🏽 and signs: -- ... !!! ??? {} [] () <> && || == != <= >= // /* */",
    "    indented\n\ttabbed\n\n\n\nlines and   blanks  in rows \n",
    "the the the and and and that that with with from have this will your about would there their which",
] * 20

STRINGS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t\t", "\r\n", "\r\n\r\n", " \n", "\n ", " \n \n ", "  \t \n\n  x",
    "Hello world", " Hello world", "  Hello   world  ", "Hello\nworld\n", "Hello, world!  How are you?\n\n\nFine. \n \n",
    "isn't we'll I'm they've you'd it's we're", "ISN'T WE'LL I'M THEY'VE YOU'D IT'S WE'RE", "'s't'x ' s 'S", "don\u2019t",
    "it'\u017f long s", "1 12 123 1234 12345 1234567890", "3.14 -1e10 0x1F ½ ² Ⅷ ٣٤ 一二三", "a1b2c3", "x = y+1;//z",
    "caf\u00e9 cafe\u0301", "A\u030a \u212b \u00c5", "\u1e9b\u0323", "e\u0301\u0302\u0303", "\u0301start", "\uac00 \u1100\u1161", "ﬁ ﬀ ＡＢＣ ①",
    "日本語", "日本語 テキスト。漢字", "中文，没有空格的一句话。", "مرحبا بالعالم", "שָׁלוֹם", "नमस्ते दुनिया", "สวัสดีครับ", "Ελληνικά Ένα",
    "😀", "😀😃 👍🏽", "👩\u200d👩\u200d👧\u200d👦", "🇩🇪🇫🇷", "❤\ufe0f", "\u200d\u200c\ufeff", "\u00a0x\u2003y\u3000z", "a\u0085b\u2028c\u2029d",
    "\u180e \u200b", "\x00", "a\x00b", "\x01\x02\x1b[2J\x7f", "\ufffd", "\uffff", "\U0010ffff\U000e0fff\u0378", "\u0e01\ue000",
    "a" * 300, "ab" * 200, "supercalifragilisticexpialidocious" * 4, " " * 70, "\n" * 20, "-" * 50, "9" * 40, "語" * 60, "😀" * 20,
    "<|endoftext|>", "Hello<|endoftext|>world", " <|endoftext|> \n", "<|endoftext|><|endoftext|>", "<|endoftext", "<s>a</s> b<unk>c",
    "▁a ▁▁b", "<0x41> <0x0A>", "_underscored_ __init__", "http://a.b/c?d=e&f=%20#g", "\\n \\ \" ' `", "…—–«»„“",
    "The quick brown fox isn't 12345 日本語 😀\n\n\tdone. ", "word " * 30, "trailing   ", "tab\tseparated\tvalues\n",
    "<x>", "a <x> b", "a<x>b", "<y> y<y>y", "éé e\u0301e\u0301",
]


def byte_level(vocabulary, normalizer, pre_tokenizer, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def gpt2():
    return byte_level(700, None, pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_prefix_space():
    return byte_level(500, None, pre_tokenizers.ByteLevel(add_prefix_space=True))


def qwen2():
    tokenizer = byte_level(700, normalizers.NFC(), split(QWEN2))
    tokenizer.add_tokens([AddedToken("<x>", lstrip=True), AddedToken("<y>", single_word=True, rstrip=True), AddedToken("éé", normalized=True)])
    return tokenizer


def llama3():
    tokenizer = byte_level(700, None, split(LLAMA3))
    # Tokens that no merge reaches, so that ignore_merges has something to do.
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = True
    vocabulary = state["model"]["vocab"]
    for word in ["Ġunderscored", "supercalifragilisticexpialidocious", "ĠHello"]:
        vocabulary.setdefault(word, len(vocabulary))
    return Tokenizer.from_str(json.dumps(state))


def llama2_model():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # while it is trained
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=special + [f"<0x{b:02X}>" for b in range(256)],
                                  limit_alphabet=150, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in special]  # bytes are ordinary tokens
    return state


def llama2():
    state = llama2_model()
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def llama2_metaspace():
    state = llama2_model()
    state["normalizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def learned():
    """One that Invar has learned and written."""
    return Tokenizer.from_file(str(pathlib.Path(__file__).parent / "learned_tokenizer.json"))


def main():
    folder = pathlib.Path(__file__).parent / "golden"
    folder.mkdir(exist_ok=True)
    for family in [gpt2, gpt2_prefix_space, qwen2, llama3, llama2, llama2_metaspace, learned]:
        tokenizer = family()
        cases = []
        for text in STRINGS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        golden = {"made_by": f"tokenizers {__version__}", "tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        path = folder / f"{family.__name__}.json"
        path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
        print(f"{path}: {len(cases)} strings, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
