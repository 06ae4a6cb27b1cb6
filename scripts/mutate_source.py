"""What mutate.py makes of a C++ source: the places where it could be wrong, and a text that holds the wrong forms beside
the right one. Every form is there at once, behind mutants::on(ID); lines keep their numbers. Only tokens are looked at, so
some forms do not compile; the compiler sorts those out."""
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r'''
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<pre>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<string>(?:u8|[uUL])?R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
  | (?P<number>(?:0[xX][0-9a-fA-F']+|\.?\d(?:[\d'.]|[eE][+-]?\d)*)[uUlLfF]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<op><=>|->\*|\.\.\.|<<=|>>=|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
''', re.X | re.S | re.M)

OPEN, CLOSE = {'(': ')', '[': ']', '{': '}'}, {')', ']', '}'}
ASSIGN = {'=', '+=', '-=', '*=', '/=', '%=', '|=', '&=', '^='}
BOUNDARY = {'<': ('<=', 'less_equal'), '<=': ('<', 'less'), '>': ('>=', 'greater_equal'), '>=': ('>', 'greater')}
NEGATED = {'<': ('>=', 'greater_equal'), '<=': ('>', 'greater'), '>': ('<=', 'less_equal'), '>=': ('<', 'less'),
           '==': ('!=', 'not_equal_to'), '!=': ('==', 'equal_to')}
ARITHMETIC = {'+': ('-', 'minus'), '-': ('+', 'plus'), '*': ('/', 'divides'), '/': ('*', 'multiplies')}
PROXY = {'<': 'Less', '<=': 'LessEqual', '>': 'Greater', '>=': 'GreaterEqual', '==': 'Equal', '!=': 'NotEqual',
         '+': 'Plus', '-': 'Minus', '*': 'Times', '/': 'Over'}
NO_STATEMENT = set('''if for while switch case default using namespace static const constexpr auto delete new else do try
    catch goto template class struct enum union typedef public private protected friend virtual explicit inline extern
    static_assert co_return int bool double float char long unsigned void operator'''.split())
LEAVES = {'return', 'continue', 'break', 'throw'}
# What stands in the parentheses of these, or behind the condition of a check, is a message.
MESSAGES = {'format', 'fail', 'to_string', 'static_assert', 'decltype', 'sizeof', 'note', 'where'}


@dataclass
class Token:
    kind: str
    text: str
    start: int
    line: int
    spaced: bool = False  # white space on both sides
    match: int = -1  # of a bracket, the other one
    inside: int = -1  # the bracket around it


@dataclass
class Mutant:
    kind: str
    line: int
    last: int  # the last line that its text reaches
    change: str
    edits: list = field(default_factory=list)  # (offset, characters taken away, text with ID in it)
    file: str = ''
    id: int = 0

    @property
    def key(self):
        return f'{self.file}:{self.line}:{self.edits[0][0]}:{self.kind}'


def tokenize(text):
    tokens, line, at = [], 1, 0
    for found in TOKEN.finditer(text):
        line += text.count('\n', at, found.start())
        at = found.start()
        kind = found.lastgroup if found.lastgroup != 'd' else 'string'
        if kind in ('skip', 'pre'):
            continue
        end = found.end()
        spaced = at > 0 and text[at - 1].isspace() and end < len(text) and text[end].isspace()
        tokens.append(Token(kind, found.group(), at, line, spaced))
    stack = []
    for i, token in enumerate(tokens):
        if token.kind == 'op' and token.text in CLOSE:
            if stack and OPEN[tokens[stack[-1]].text] == token.text:
                token.match = stack.pop()
                tokens[token.match].match = i
        token.inside = stack[-1] if stack else -1
        if token.kind == 'op' and token.text in OPEN:
            stack.append(i)
    return tokens


class Source:
    def __init__(self, text):
        self.text = text
        self.tokens = tokenize(text)

    def at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ''

    def end(self, i):
        return self.tokens[i].start + len(self.tokens[i].text)

    def piece(self, first, last):
        return ' '.join(self.text[self.tokens[first].start:self.end(last)].split())

    def before(self, i, stops):
        """The first token of the operand that ends before token i."""
        i -= 1
        while i >= 0:
            token = self.tokens[i]
            if token.kind == 'op' and token.text in CLOSE and token.match >= 0:
                i = token.match - 1
                continue
            if token.text in OPEN or token.text in stops:
                return i + 1
            i -= 1
        return 0

    def after(self, i, stops):
        """The last token of the operand that begins behind token i."""
        i += 1
        while i < len(self.tokens):
            token = self.tokens[i]
            if token.kind == 'op' and token.text in OPEN and token.match >= 0:
                i = token.match + 1
                continue
            if token.text in CLOSE or token.text in stops:
                return i - 1
            i += 1
        return i - 1

    def in_message(self, i):
        inside = self.tokens[i].inside
        while inside >= 0:
            name = inside - 1
            if self.at(name) == '>':  # check<UsageError>(
                name = next((j for j in range(name, max(name - 8, -1), -1) if self.at(j) == '<'), name) - 1
            if self.at(inside) == '(' and self.at(name) in MESSAGES:
                return True
            if self.at(inside) == '(' and self.at(name) == 'check' and self.after(inside, {','}) < i:
                return True
            inside = self.tokens[inside].inside
        return False

    def constexpr_of(self, i):
        """The `constexpr` of the declaration that token i stands in, or -1."""
        j = i - 1
        while j >= 0 and self.at(j) not in (';', '{', '}'):
            if self.at(j) == 'constexpr':
                return j
            j -= 1
        return -1

    def mutants(self):
        for i, token in enumerate(self.tokens):
            if not self.in_message(i):
                yield from self.mutants_at(i, token)

    def mutants_at(self, i, token):
        if token.kind == 'number':
            yield from self.constant(i, token)
        elif token.kind == 'word':
            if token.text == 'if' and self.at(i + 1) == '(':
                yield from self.condition(i + 2, self.tokens[i + 1].match - 1, 'if')
            if token.text == 'return':
                yield from self.bool_return(i)
            if token.text in ('min', 'max') and self.at(i - 1) == '::' and self.at(i - 2) == 'std':
                yield from self.min_max(i, token)
            yield from self.deletion(i)
        elif token.kind == 'op':
            if token.text in ('++', '--', '*'):
                yield from self.deletion(i)
            if token.text == '!' and self.at(i - 1) in ('(', '&&', '||', 'return', '=', ',', '?', ':'):
                yield Mutant('not', token.line, token.line, f'{self.piece(i, i + 1)} -> {self.at(i + 1)}',
                             [(token.start, 1, 'mutants::on(ID) != !')])
            if token.text == '?':
                yield from self.condition(self.before(i, ASSIGN | {',', ';', '?', ':', 'return', '<<', '}'}), i - 1, '?')
            if token.spaced and self.is_operand(i - 1):
                yield from self.binary(i, token)

    def is_operand(self, i):
        return i >= 0 and (self.tokens[i].kind in ('word', 'number') and self.at(i) not in LEAVES or self.at(i) in (')', ']'))

    def binary(self, i, token):
        if 'string' in (self.tokens[i - 1].kind, self.tokens[min(i + 1, len(self.tokens) - 1)].kind):
            return
        near = f'{self.at(i - 1)} {{}} {self.at(i + 1)}'
        for kind, table in (('boundary', BOUNDARY), ('relation', NEGATED), ('arithmetic', ARITHMETIC)):
            if token.text in table and not (kind == 'boundary' and self.is_loop_end(i)):
                other, functor = table[token.text]
                text = f'{token.text} mutants::{PROXY[token.text]}<ID, std::{functor}<>>{{}} {token.text}'
                yield Mutant(kind, token.line, token.line, f'{near.format(token.text)} -> {other}',
                             [(token.start, len(token.text), text)])
        if token.text in ('&&', '||'):
            stops = ASSIGN | {',', ';', '?', ':', 'return', '}'}
            first = self.before(i, stops | ({'||'} if token.text == '&&' else set()))
            last = self.after(i, stops | {'||'} | ({'&&'} if token.text == '&&' else set()))
            on = 'mutants::on(ID) != '
            edits = [(self.tokens[first].start, 0, f'({on}(({on}bool('), (token.start, 0, ')) '),
                     (self.end(i), 0, f' ({on}bool('), (self.end(last), 0, '))))')]
            yield Mutant('logic', self.tokens[first].line, self.tokens[last].line,
                         f'{near.format(token.text)} -> {"||" if token.text == "&&" else "&&"}', edits)

    def is_loop_end(self, i):
        """Whether it is the end of a counting loop: one round more reads behind an array, which is for a sanitizer to see."""
        around = self.tokens[i].inside
        return self.at(i) in ('<', '<=') and self.at(around) == '(' and self.at(around - 1) == 'for'

    def condition(self, first, last, kind):
        if last < first or any(self.tokens[j].inside == self.tokens[first].inside and self.at(j) in ASSIGN | {';'}
                               for j in range(first, last + 1)):
            return
        edits = [(self.tokens[first].start, 0, '(mutants::on(ID) != bool('), (self.end(last), 0, '))')]
        yield Mutant('condition', self.tokens[first].line, self.tokens[last].line,
                     f'{kind} {self.piece(first, last)[:50]} -> negated', edits)

    def bool_return(self, i):
        last = self.after(i, {';'})
        level = [j for j in range(i + 1, last + 1) if self.tokens[j].inside == self.tokens[i].inside]
        words = {self.at(j) for j in level if self.tokens[j].spaced or j == i + 1}
        if last > i and words & (set(NEGATED) | {'&&', '||', '!', 'true', 'false'}) and '?' not in words:
            edits = [(self.tokens[i + 1].start, 0, 'mutants::on(ID) != bool('), (self.end(last), 0, ')')]
            yield Mutant('return', self.tokens[i].line, self.tokens[last].line,
                         f'return {self.piece(i + 1, last)[:50]} -> negated', edits)

    def min_max(self, i, token):
        other = 'max' if token.text == 'min' else 'min'
        explicit = self.at(i + 1) == '<'
        if not explicit and self.at(i + 1) != '(':
            return
        taken = self.end(i) - self.tokens[i - 2].start
        edits = [(self.tokens[i - 2].start, taken, f'mutants::{token.text}_<ID' + ('' if explicit else '>'))]
        if explicit:
            edits.append((self.tokens[i + 1].start, 1, ', '))
        yield Mutant('min/max', token.line, token.line, f'std::{token.text} -> std::{other}', edits)

    def constant(self, i, token):
        near = self.text[token.start - 1], self.text[self.end(i):self.end(i) + 1]
        if token.text[:2] in ('0x', '0X') or '<' in near or '>' in near or self.at(i - 1) in ('case', '['):
            return
        real = any(c in token.text for c in '.eE')
        zero = not token.text.rstrip('uUlLfF').strip("0.'")
        wrong = f'{token.text} + 1' if not real or zero else f'2 * {token.text}'
        edits = [(token.start, len(token.text), f'(mutants::on(ID) ? {wrong} : {token.text})')]
        fixed = self.constexpr_of(i)
        if fixed >= 0:
            word = 'inline const' if self.at(fixed - 1) == 'static' else 'const'
            edits.insert(0, (self.tokens[fixed].start, len('constexpr'), word))
        yield Mutant('constant', token.line, token.line, f'{self.at(i - 1)} {token.text} -> {wrong}', edits)

    def deletion(self, i):
        around, previous = self.tokens[i].inside, self.at(i - 1)
        if around < 0 or self.at(around) != '{' or self.at(i) in NO_STATEMENT:
            return
        guarded = False
        if previous == ')':
            guarded = self.at(self.tokens[i - 1].match - 1) in ('if', 'for', 'while')
        if not guarded and previous not in ('{', '}', ';', 'else'):
            return
        last = self.after(i, {';'}) + 1
        if self.at(last) != ';' or not (self.at(i) in LEAVES and guarded or self.is_expression(i, last)):
            return
        edits = [(self.tokens[i].start, 0, '{ if (!mutants::on(ID)) { '), (self.end(last), 0, ' } }')]
        yield Mutant('delete', self.tokens[i].line, self.tokens[last].line, f'{self.piece(i, last)[:60]} -> deleted', edits)

    def is_expression(self, i, last):
        """Whether the statement is a call, an assignment or a count, and no declaration."""
        if self.at(i) in ('++', '--', '*'):
            return self.is_expression(i + 1, last) or self.at(i) != '*' and last == i + 2
        if self.tokens[i].kind != 'word' or self.at(i) in LEAVES:
            return False
        i += 1
        while i < last:
            if self.at(i) in ('::', '.', '->') and self.tokens[i + 1].kind == 'word':
                i += 2
            elif self.at(i) in ('(', '['):
                i = self.tokens[i].match + 1
            elif self.at(i) == '<' and self.at(i + 2) == '>' and self.at(i + 3) == '(':
                i += 3
            else:
                break
        if i == last and self.at(i - 1) == ')':
            return self.at(self.tokens[i - 1].match - 1) != 'reserve'  # memory alone
        return self.at(i) in ASSIGN | {'++', '--'}


def rewritten(text, mutants):
    """The text with every mutant in it, each behind its id."""
    edits = []
    for mutant in mutants:
        for n, (offset, taken, put) in enumerate(mutant.edits):
            # At one place what closes comes before what opens, and what opens first reaches furthest.
            opens = n == 0 or taken > 0
            edits.append((offset, opens, -mutant.edits[-1][0] if opens else -mutant.edits[0][0], taken,
                          put.replace('ID', str(mutant.id))))
    out, at = [], 0
    for offset, _, _, taken, put in sorted(edits):
        assert offset >= at, (offset, put)
        out += [text[at:offset], put]
        at = offset + taken
    return '#include "mutants.h"\n#line 1\n' + ''.join(out) + text[at:]


HEADER = r'''// The switch behind every mutant, and operators that stand in for those of a mutant: `a < Less<7, other>{} < b`.
#pragma once
#pragma GCC system_header
#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>
namespace mutants {
extern int active;
extern unsigned char* reached;
int start() noexcept;
inline bool on(int id) {
    if (active < 0) start();
    if (reached != nullptr) reached[id] = 1;
    return active == id;
}
#define MUTANTS_OPERATOR(op, Name)                                                                          \
    template <int Id, class Other> struct Name {};                                                          \
    template <class A, int Id, class Other> struct Name##Left { A&& a; };                                   \
    template <class A, int Id, class Other>                                                                 \
    Name##Left<A, Id, Other> operator op(A&& a, Name<Id, Other>) { return {std::forward<A>(a)}; }           \
    template <class A, int Id, class Other, class B>                                                        \
    auto operator op(Name##Left<A, Id, Other> left, B&& b)                                                  \
        -> std::decay_t<decltype(std::forward<A>(left.a) op std::forward<B>(b))> {                          \
        using Result = std::decay_t<decltype(std::forward<A>(left.a) op std::forward<B>(b))>;               \
        if (on(Id)) return static_cast<Result>(Other{}(std::forward<A>(left.a), std::forward<B>(b)));       \
        return std::forward<A>(left.a) op std::forward<B>(b);                                               \
    }
MUTANTS_OPERATOR(<, Less)
MUTANTS_OPERATOR(<=, LessEqual)
MUTANTS_OPERATOR(>, Greater)
MUTANTS_OPERATOR(>=, GreaterEqual)
MUTANTS_OPERATOR(==, Equal)
MUTANTS_OPERATOR(!=, NotEqual)
MUTANTS_OPERATOR(+, Plus)
MUTANTS_OPERATOR(-, Minus)
MUTANTS_OPERATOR(*, Times)
MUTANTS_OPERATOR(/, Over)
template <int Id, class T> T min_(const T& a, const T& b) { return on(Id) ? std::max(a, b) : std::min(a, b); }
template <int Id, class T> T max_(const T& a, const T& b) { return on(Id) ? std::min(a, b) : std::max(a, b); }
}  // namespace mutants
'''

SWITCH = r'''// Which mutant this process is, and where it notes those it comes by; children share the file.
#include "mutants.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdlib>
namespace mutants {
constinit int active = -1;
constinit unsigned char* reached = nullptr;
int start() noexcept {
    const char* chosen = std::getenv("INVAR_MUTANT");
    const char* file = std::getenv("INVAR_MUTANTS_REACHED");
    if (file != nullptr) {
        const int handle = ::open(file, O_RDWR);
        void* map = handle < 0 ? MAP_FAILED : ::mmap(nullptr, COUNT, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
        if (map != MAP_FAILED) reached = static_cast<unsigned char*>(map);
        if (handle >= 0) ::close(handle);
    }
    active = chosen != nullptr ? std::atoi(chosen) : 0;
    return active;
}
}  // namespace mutants
'''
