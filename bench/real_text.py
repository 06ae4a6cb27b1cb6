#!/usr/bin/env python3
# Makes plain English text of unpacked Debian packages: a file for each document under OUT/train and OUT/validation, and OUT/sources.json, which
# says what came from where. The same packages always give the same bytes. A paragraph that came before is left out wherever it comes
# again, so that nothing of the validation documents stands in the others.
#
#   bench/real_text.py UNPACKED OUT               # UNPACKED/NAME is what `dpkg-deb -x` made of the package NAME
#   bench/real_text.py --packages                 # their names
#   bench/real_text.py --facts DEBS OUT TOKENS    # as JSON: versions, bytes, tokens, and what guessing by frequency alone gives
import array
import collections
import gzip
import hashlib
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

VALIDATION_SHARE = 0.01  # of the documents, by a hash of their names
DOCUMENT = 24000         # characters at which a dictionary is cut before its next word, and the Bible before its next chapter


def read(path):
    data = gzip.decompress(path.read_bytes()) if path.suffix in (".gz", ".dz") else path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


# A page as paragraphs. What is code, a table or navigation is no prose and is left out.
class Page(HTMLParser):
    BLOCKS = set("p li dd dt h1 h2 h3 h4 h5 h6 blockquote div section article body br hr ul ol dl title desc item".split())
    LEFT_OUT = set("script style head nav table pre footer header form button svg screen info media".split())
    NAVIGATION = re.compile(r"navheader|navfooter|sphinxsidebar|related|headerlink|toc\b|contents|breadcrumb|footer|highlight|"
                            r"quickview|langavail|toplang|bottomlang|comments|copyright|index")
    EMPTY = set("br hr img meta link input col area base wbr source".split())

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.paragraphs, self.words, self.open = [], [], []  # open: (tag, whether its text is left out)

    def left_out(self):
        return bool(self.open) and self.open[-1][1]

    def end_paragraph(self):
        text = " ".join("".join(self.words).split())
        self.words = []
        if text:
            self.paragraphs.append(text)

    def handle_starttag(self, tag, attributes):
        if tag in self.BLOCKS:
            self.end_paragraph()
        if tag in self.EMPTY:
            return
        names = " ".join(value or "" for name, value in attributes if name in ("class", "id"))
        hidden = tag in self.LEFT_OUT or (tag not in ("body", "html") and bool(self.NAVIGATION.search(names)))
        # A paragraph or list item that nobody has closed ends where the next one begins.
        if tag in ("p", "li", "dd", "dt") and self.open and self.open[-1][0] in ("p", tag):
            self.open.pop()
        self.open.append((tag, hidden or self.left_out()))

    def handle_endtag(self, tag):
        if tag in self.BLOCKS:
            self.end_paragraph()
        for i in range(len(self.open) - 1, -1, -1):
            if self.open[i][0] == tag:
                del self.open[i:]
                return

    def handle_data(self, data):
        if not self.left_out():
            self.words.append(data)


def html(text):
    page = Page()
    page.feed(text)
    page.close()
    page.end_paragraph()
    return [p.replace("¶", "").strip() for p in page.paragraphs]


def plain(text):
    """Paragraphs that blank lines separate; lines are joined."""
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]


def pod(text):
    """Perl's own format: what is indented is code, C<...> and its like are names."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        if not block or block[0] in " \t":
            continue
        if block.startswith("="):
            if not re.match(r"=(head\d|item)\b", block):
                continue
            block = re.sub(r"^=\w+\s*", "", block)
        block = block.replace("E<gt>", ">").replace("E<lt>", "<")
        for _ in range(3):
            block = re.sub(r"\b[BCFISXLZ]<<+\s(.*?)\s>>+|\b[BCFISXLZ]<([^<>]*)>", lambda m: (m[1] or m[2] or "").split("|")[0], block, flags=re.S)
        paragraphs.append(" ".join(block.split()))
    return paragraphs


def entries(text):
    """The words of a dictionary as dictd keeps it: a line that is not indented begins one."""
    return [e for e in re.split(r"\n(?=[^\s])", text) if not e.startswith("00-database")]


def gcide(text):
    for entry in entries(text):
        entry = re.sub(r"\\[^\\\n]*\\,?", "", entry)  # how it is pronounced
        entry = re.sub(r"\[(1913 Webster|PJC|WordNet|Webster|Century|RP|RH|AS|GG|DP|MW)[^\]]*\]", "", entry)
        yield [p.translate(BRACES) for p in plain(entry)]


def wordnet(text):
    for entry in entries(text):
        word, _, meanings = entry.partition("\n")
        meanings = re.sub(r"\[(syn|ant|also):[^\]]*\]", "", " ".join(meanings.split()))
        for sense in re.split(r"(?:^|\s)(?:(?:n|v|adj|adv)\s)?\d+: ", meanings):
            if sense.strip():
                yield [(word.strip() + ": ", sense.strip().translate(BRACES))]


def computing(text):
    for entry in entries(text):
        head, _, rest = entry.partition("\n")
        yield [head + ": " + p.translate(BRACES) if i == 0 else p.translate(BRACES) for i, p in enumerate(q for q in plain(rest) if len(q) > 20)]


BRACES = str.maketrans("", "", "{}")


def cut(name, parts):
    """Documents of some 24000 characters, each of whole parts, which are lists of paragraphs."""
    chunk, size, number = [], 0, 0
    for paragraphs in parts:
        chunk += paragraphs
        size += sum(len("".join(p)) for p in paragraphs)
        if size > DOCUMENT:
            yield f"{name}#{number}", chunk
            chunk, size, number = [], 0, number + 1
    if chunk:
        yield f"{name}#{number}", chunk


def bible(root):
    """The program prints a verse a line, behind its place: Gen1:1 In the beginning ..."""
    text = subprocess.run([root / "bible-kjv/usr/bin/bible", "-f", "-p", str(root / "bible-kjv-text/usr/lib"), "gen1:1-rev22:21"], check=True,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    books = {}
    for line in text.splitlines():
        place = re.match(r"\s*(\d?\s?[A-Za-z]+)\s*(\d+):\d+\s+(.*)", line)
        if place:
            books.setdefault(place[1], {}).setdefault(int(place[2]), []).append(place[3].strip())
    for book, chapters in books.items():
        yield from cut(book, ([" ".join(verses)] for verses in chapters.values()))


# What a package is read as, and which of its files.
SOURCES = [
    ("anarchism", html, "usr/share/doc/anarchism/html/*.html"),
    ("apache2-doc", html, "usr/share/doc/apache2-doc/manual/en/**/*.html"),
    ("aptitude-doc-en", html, "usr/share/doc/aptitude/html/en/*.html"),
    ("debian-faq", html, "usr/share/doc/debian/FAQ/*.html"),
    ("debian-handbook", html, "usr/share/doc/debian-handbook/html/en-US/*.html"),
    ("debian-history", html, "usr/share/doc/debian-history/**/*.en.html"),
    ("debian-policy", html, "usr/share/doc/debian-policy/**/*.html"),
    ("debian-reference-en", html, "usr/share/debian-reference/*.en.html"),
    ("developers-reference", html, "usr/share/**/*.html"),
    ("exim4-doc-html", html, "usr/share/doc/exim4-doc-html/**/*.html"),
    ("git-doc", html, "usr/share/doc/git-doc/**/*.html"),
    ("gnome-user-docs", html, "usr/share/help/C/**/*.page"),
    ("harden-doc", html, "usr/share/doc/harden-doc/html/**/en-US/**/*.html"),
    ("maint-guide", html, "usr/share/doc/maint-guide/html/*.html"),
    ("perl-doc", pod, "usr/share/perl/**/*.pod"),
    ("postgresql-doc-15", html, "usr/share/doc/postgresql-doc-15/html/*.html"),
    ("python3.11-doc", html, "usr/share/doc/python3.11/html/**/*.html"),
    ("sqlite3-doc", html, "usr/share/doc/sqlite3/**/*.html"),
    ("dict-devil", computing, "usr/share/dictd/*.dict.dz"),
    ("dict-foldoc", computing, "usr/share/dictd/*.dict.dz"),
    ("dict-jargon", computing, "usr/share/dictd/*.dict.dz"),
    ("dict-gcide", gcide, "usr/share/dictd/*.dict.dz"),
    ("dict-wn", wordnet, "usr/share/dictd/*.dict.dz"),
]
DICTIONARIES = (gcide, wordnet, computing)
NOT_PROSE = re.compile(r"genindex|py-modindex|/index\.html|search\.html|bookindex|/glossary|toc|changelog")


def documents(root, package, reader, pattern):
    """(name, paragraphs) of each document. A paragraph may be (what goes before it, what it is known by)."""
    for path in sorted((root / package).glob(pattern), key=str):
        name = str(path.relative_to(root))
        if not path.is_file() or path.is_symlink() or NOT_PROSE.search(name):
            continue
        text = read(path)
        if reader not in DICTIONARIES:
            yield name, reader(text)
            continue
        yield from cut(name, reader(text))


def is_prose(text):
    """Sentences, rather than names, numbers, symbols or another alphabet."""
    if len(re.findall(r"[A-Za-z]{2,}", text)) < 5:
        return False
    letters = sum(map(str.isalpha, text)) + text.count(" ")
    return letters > 0.85 * len(text) and len(text.encode("ascii", "ignore")) > 0.97 * len(text)


def unigram_loss(train, validation, vocabulary):
    """The mean of -ln p of the validation tokens, p being how often a token comes in training, each once more than it does."""
    def tokens(path):
        numbers = array.array("H", path.read_bytes())
        if sys.byteorder == "big":
            numbers.byteswap()
        return collections.Counter(numbers)

    counts, held_out = tokens(train), tokens(validation)
    total = sum(counts.values()) + vocabulary
    return -sum(n * math.log((counts[token] + 1) / total) for token, n in held_out.items()) / sum(held_out.values())


def facts(debs, out, tokens):
    parts = {part: json.loads((tokens / f"{part}.json").read_text()) for part in ("train", "validation")}
    versions = {}
    for path in sorted(debs.glob("*.deb")):
        name, version, _ = path.name.split("_", 2)
        versions[name] = {"version": version.replace("%3a", ":"), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    print(json.dumps({
        "sources": json.loads((out / "sources.json").read_text()), "packages": versions, "vocabulary": parts["train"]["vocabulary"],
        **{part: {key: found[key] for key in ("files", "bytes", "tokens", "bytes_per_token")} for part, found in parts.items()},
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(tokens.glob("*")) if path.name in
                   ("train.bin", "validation.bin", "tokenizer.json")},
        "unigram_val_loss": unigram_loss(tokens / "train.bin", tokens / "validation.bin", parts["train"]["vocabulary"])}, indent=1))


def main():
    if sys.argv[1:] == ["--packages"]:
        return print("bible-kjv", "bible-kjv-text", *(source[0] for source in SOURCES))
    if sys.argv[1:2] == ["--facts"] and len(sys.argv) == 5:
        return facts(*map(Path, sys.argv[2:]))
    if len(sys.argv) != 3:
        sys.exit("usage: real_text.py UNPACKED OUT; its first lines say what else it can do")
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    for part in ("train", "validation"):
        (out / part).mkdir(parents=True, exist_ok=True)
        if any((out / part).iterdir()):
            sys.exit(f"real_text.py: {out / part} is not empty; remove it, or name another folder")
    seen, table, number = set(), [], 0
    found = [("bible-kjv-text", bible(root))] + [(s[0], documents(root, *s)) for s in SOURCES]
    for package, parts in found:
        row = {"package": package, "documents": 0, "bytes": 0, "validation_documents": 0, "validation_bytes": 0}
        for name, paragraphs in parts:
            kept = []
            for paragraph in paragraphs:
                before, text = ("", paragraph) if isinstance(paragraph, str) else paragraph
                text = re.sub(r"[\x00-\x1f]", " ", text).strip()
                key = hashlib.sha256(re.sub(r"\W+", " ", text).lower().encode()).digest()[:12]
                if not is_prose(text) or key in seen:
                    continue
                seen.add(key)
                kept.append(before + text)
            data = ("\n\n".join(kept) + "\n").encode()
            if len(data) < 400:  # a page of links
                continue
            draw = int.from_bytes(hashlib.sha256(f"{package} {name}".encode()).digest()[:8], "big") / 2**64
            part = "validation" if draw < VALIDATION_SHARE else "train"
            (out / part / f"{number:05}-{package}.txt").write_bytes(data)
            number += 1
            which = "validation_" if part == "validation" else ""
            row[which + "documents"] += 1
            row[which + "bytes"] += len(data)
        if not row["documents"]:  # the package is laid out otherwise than it was
            sys.exit(f"real_text.py: {package}: no text was found in {root / package}")
        table.append(row)
        print(f"{package:24} {row['documents']:6} documents {row['bytes']:10} bytes, held out {row['validation_documents']:4}, {row['validation_bytes']:8}", flush=True)
    (out / "sources.json").write_text(json.dumps(table, indent=1) + "\n")
    total, held = sum(r["bytes"] for r in table), sum(r["validation_bytes"] for r in table)
    print(f"{'together':24} {sum(r['documents'] for r in table):6} documents {total:10} bytes, held out {sum(r['validation_documents'] for r in table):4}, {held:8}")


if __name__ == "__main__":
    main()
