#include "invar/hub/pickle.h"

#include <algorithm>
#include <map>

#include "invar/core/error.h"
#include "invar/io/protobuf.h"            // little_endian_number
#include "invar/io/safetensors_header.h"  // Quoted

namespace invar {

namespace {

constexpr std::size_t kMostValues = std::size_t(1) << 21, kMostMarks = 1024;  // marks that are open at once

// The codes that pickles of plain values and of tensors are made of.
enum Code : unsigned char {
    kMark = '(',
    kStop = '.',
    kPop = '0',
    kPopMark = '1',
    kDup = '2',
    kNone = 'N',
    kTrue = 0x88,
    kFalse = 0x89,
    kBinInt = 'J',
    kBinInt1 = 'K',
    kBinInt2 = 'M',
    kLong1 = 0x8a,
    kLong4 = 0x8b,
    kBinFloat = 'G',
    kBinString = 'T',
    kShortBinString = 'U',
    kBinUnicode = 'X',
    kShortBinUnicode = 0x8c,
    kBinUnicode8 = 0x8d,
    kBinBytes = 'B',
    kShortBinBytes = 'C',
    kBinBytes8 = 0x8e,
    kByteArray8 = 0x96,
    kEmptyList = ']',
    kAppend = 'a',
    kAppends = 'e',
    kEmptyTuple = ')',
    kTuple = 't',
    kTuple1 = 0x85,
    kTuple2 = 0x86,
    kTuple3 = 0x87,
    kEmptyDict = '}',
    kSetItem = 's',
    kSetItems = 'u',
    kEmptySet = 0x8f,
    kAddItems = 0x90,
    kFrozenSet = 0x91,
    kGlobal = 'c',
    kStackGlobal = 0x93,
    kReduce = 'R',
    kNewObject = 0x81,
    kBuild = 'b',
    kBinPersId = 'Q',
    kBinGet = 'h',
    kLongBinGet = 'j',
    kBinPut = 'q',
    kLongBinPut = 'r',
    kMemoize = 0x94,
    kProto = 0x80,
    kFrame = 0x95
};

}  // namespace

class PickleMachine {
  public:
    using Kind = PickleValue::Kind;
    using Index = PickleValue::Index;

    PickleMachine(Pickle& pickle, std::string_view bytes, const std::string& source, const Pickle::Knows& knows)
        : pickle_(pickle), bytes_(bytes), source_(source), knows_(knows) {}

    void run() {
        while (step(static_cast<unsigned char>(take(1)[0]))) {
        }
    }

  private:
    [[noreturn]] void damaged(std::string_view what) const {
        fail<IoError>("{}: its pickle {} at byte {}; the file is damaged", source_, what, at_);
    }
    std::string_view take(std::uint64_t count) {
        if (count > bytes_.size() - at_) damaged("ends too early");
        const std::string_view taken = bytes_.substr(at_, std::size_t(count));
        at_ += taken.size();
        return taken;
    }
    std::uint64_t take_number(std::size_t width) { return little_endian_number(take(width)); }
    std::string_view take_line() {
        const std::size_t end = bytes_.find('\n', at_);
        if (end == bytes_.npos) damaged("ends too early");
        const std::string_view line = take(end - at_);
        take(1);
        return line;
    }

    PickleValue& value(Index index) { return pickle_.values_[index]; }
    void push(PickleValue made) {
        check<IoError>(pickle_.values_.size() < kMostValues,
                       "{}: its pickle holds more than {} values, and so more than tensors", source_, kMostValues);
        push_again(Index(pickle_.values_.size()));
        pickle_.values_.push_back(std::move(made));
    }
    void push_again(Index index) {
        if (stack_.size() >= kMostValues) damaged("piles up too much");
        stack_.push_back(index);
    }
    void push_integer(std::int64_t integer, Kind kind = Kind::integer) { push({kind, integer, {}, {}}); }
    void push_text(std::string_view text) { push({Kind::text, 0, text, {}}); }
    void push_items(Kind kind, std::vector<Index> items) { push({kind, 0, {}, std::move(items)}); }

    Index top() {
        if (stack_.size() <= floor()) damaged("takes from an empty stack");
        return stack_.back();
    }
    Index pop() {
        const Index index = top();
        stack_.pop_back();
        return index;
    }
    std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    std::vector<Index> pop_last(std::size_t count) {
        if (stack_.size() < floor() + count) damaged("takes from an empty stack");
        std::vector<Index> items(stack_.end() - std::ptrdiff_t(count), stack_.end());
        stack_.resize(stack_.size() - count);
        return items;
    }
    std::vector<Index> pop_to_mark() {
        if (marks_.empty()) damaged("has no mark");
        std::vector<Index> items = pop_last(stack_.size() - marks_.back());
        marks_.pop_back();
        return items;
    }
    // What is appended to, and is then still on the stack.
    void extend(Kind kind, const std::vector<Index>& items) {
        PickleValue& target = value(top());
        if (target.kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) damaged("fills what is no container");
        target.items.insert(target.items.end(), items.begin(), items.end());
    }

    void push_global(std::string_view module, std::string_view name) {
        const std::string& global = pickle_.names_.emplace_back(fmt::format("{}.{}", module, name));
        check<IoError>(
            knows_(global),
            "{}: asks for {}, which is no part of a file of tensors; nothing of it was run. Save the tensors "
            "alone: torch.save(model.state_dict(), FILE)",
            source_, Quoted{global});
        push({Kind::global, 0, global, {}});
    }

    // A dictionary is made; all else is noted.
    void call() {
        const std::vector<Index> parts = pop_last(2);
        const PickleValue &callable = value(parts[0]), &arguments = value(parts[1]);
        if (callable.kind != Kind::global || arguments.kind != Kind::tuple) damaged("calls what cannot be called");
        if (callable.text != "collections.OrderedDict") return push_items(Kind::call, parts);
        std::vector<Index> pairs;
        if (!arguments.items.empty())
            for (const Index pair : value(arguments.items[0]).items) {
                if (value(pair).items.size() != 2) damaged("makes a dictionary of what are no pairs");
                if (++copied_ > bytes_.size()) damaged("makes the same dictionary over and over");
                pairs.insert(pairs.end(), value(pair).items.begin(), value(pair).items.end());
            }
        push_items(Kind::dict, std::move(pairs));
    }

    void put(std::uint64_t place) {
        if (memo_.size() >= kMostValues) damaged("keeps too much");
        memo_[place] = top();
    }
    void get(std::uint64_t place) {
        const auto found = memo_.find(place);
        if (found == memo_.end()) damaged("recalls what it never kept");
        push_again(found->second);
    }
    void push_long(std::string_view digits) {
        std::uint64_t bits = digits.size() > 8 ? 0 : little_endian_number(digits);
        if (!digits.empty() && digits.size() < 8 && (static_cast<unsigned char>(digits.back()) & 0x80) != 0)
            bits |= ~std::uint64_t(0) << (8 * digits.size());
        push_integer(std::int64_t(bits));
    }

    // One code; false at the end.
    bool step(unsigned char code) {
        switch (code) {
            case kProto:
                check<IoError>(take_number(1) <= 5, "{}: its pickle is of a later protocol than 5", source_);
                break;
            case kFrame:
                take(8);
                break;
            case kStop:
                pickle_.root_ = pop();
                return false;
            case kMark:
                if (marks_.size() >= kMostMarks) damaged("is nested too deeply");
                marks_.push_back(stack_.size());
                break;
            case kPop:
                pop();
                break;
            case kPopMark:
                pop_to_mark();
                break;
            case kDup:
                push_again(top());
                break;
            case kNone:
                push({});
                break;
            case kTrue:
            case kFalse:
                push_integer(code == kTrue, Kind::boolean);
                break;
            case kBinInt:
                push_integer(std::int32_t(take_number(4)));
                break;
            case kBinInt1:
                push_integer(std::int64_t(take_number(1)));
                break;
            case kBinInt2:
                push_integer(std::int64_t(take_number(2)));
                break;
            case kLong1:
                push_long(take(take_number(1)));
                break;
            case kLong4:
                push_long(take(take_number(4)));
                break;
            case kBinFloat:
                take(8);
                push_integer(0, Kind::number);
                break;
            case kShortBinString:
            case kShortBinUnicode:
            case kShortBinBytes:
                push_text(take(take_number(1)));
                break;
            case kBinString:
            case kBinUnicode:
            case kBinBytes:
                push_text(take(take_number(4)));
                break;
            case kBinUnicode8:
            case kBinBytes8:
            case kByteArray8:
                push_text(take(take_number(8)));
                break;
            case kEmptyList:
            case kEmptySet:
                push_items(Kind::list, {});
                break;
            case kAppend:
                extend(Kind::list, {pop()});
                break;
            case kAppends:
            case kAddItems:
                extend(Kind::list, pop_to_mark());
                break;
            case kFrozenSet:
                push_items(Kind::list, pop_to_mark());
                break;
            case kEmptyTuple:
                push_items(Kind::tuple, {});
                break;
            case kTuple:
                push_items(Kind::tuple, pop_to_mark());
                break;
            case kTuple1:
            case kTuple2:
            case kTuple3:
                push_items(Kind::tuple, pop_last(std::size_t(code - kTuple1 + 1)));
                break;
            case kEmptyDict:
                push_items(Kind::dict, {});
                break;
            case kSetItem:
                extend(Kind::dict, pop_last(2));
                break;
            case kSetItems:
                extend(Kind::dict, pop_to_mark());
                break;
            case kGlobal: {
                const std::string_view module = take_line();
                push_global(module, take_line());
                break;
            }
            case kStackGlobal: {
                const std::vector<Index> names = pop_last(2);
                if (value(names[0]).kind != Kind::text || value(names[1]).kind != Kind::text)
                    damaged("names a class by what is no text");
                push_global(value(names[0]).text, value(names[1]).text);
                break;
            }
            case kReduce:
            case kNewObject:
                call();
                break;
            case kBuild:  // attributes of what is below, such as the versions that state_dict() notes
                pop();
                top();
                break;
            case kBinPersId:
                push_items(Kind::persistent, {pop()});
                break;
            case kBinGet:
                get(take_number(1));
                break;
            case kLongBinGet:
                get(take_number(4));
                break;
            case kBinPut:
                put(take_number(1));
                break;
            case kLongBinPut:
                put(take_number(4));
                break;
            case kMemoize:
                put(memo_.size());
                break;
            default:
                fail<IoError>(
                    "{}: its pickle has the code {:#04x} at byte {}, which no pickle of tensors needs; it is damaged, "
                    "or of a protocol before 2",
                    source_, code, at_ - 1);
        }
        return true;
    }

    Pickle& pickle_;
    std::string_view bytes_;
    const std::string& source_;
    const Pickle::Knows& knows_;
    std::size_t at_ = 0, copied_ = 0;
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;
    std::map<std::uint64_t, Index> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& source, const Knows& knows) {
    PickleMachine(*this, bytes, source, knows).run();
}

}  // namespace invar
