#include "invar/text/steps.h"

#include <algorithm>

namespace invar::text {

namespace {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    out.reserve(text.size());
    for (;;) {
        const std::size_t at = text.find(from);
        out.append(text.substr(0, at));
        if (at == text.npos) return out;
        out.append(to);
        text.remove_prefix(at + from.size());
    }
}

// No normal form carries anything over such a place: ASCII characters combine with nothing before them, and blanks
// with nothing at all.
bool keeps_normal_forms(std::string_view head, std::string_view tail) {
    const auto byte = [](char c) { return static_cast<unsigned char>(c); };
    return head.empty() || tail.empty() || byte(tail.front()) < 0x80 || byte(head.back()) <= 0x20;
}

std::size_t characters(std::string_view text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

struct Part {
    Range range;
    bool match;
};

// Matches and what is between them, covering the text.
class Parts {
  public:
    void add_match(Range range) {
        add_rest(range.begin);
        parts_.push_back({range, true});
        end_ = range.end;
    }
    void add_rest(std::size_t end) {
        if (end > end_) parts_.push_back({{end_, end}, false});
        end_ = end;
    }
    std::vector<Part> take(bool invert) {
        if (invert)
            for (Part& part : parts_) part.match = !part.match;
        return std::move(parts_);
    }

  private:
    std::vector<Part> parts_;
    std::size_t end_ = 0;
};

}  // namespace

RewriteStep RewriteStep::normal(NormalForm form) {
    RewriteStep step(Kind::normal_form);
    step.form_ = form;
    return step;
}

RewriteStep RewriteStep::prepend(std::string text, std::string unless, bool document_only) {
    RewriteStep step(Kind::prepend);
    step.to_ = std::move(text);
    step.from_ = std::move(unless);
    step.document_only_ = document_only;
    return step;
}

RewriteStep RewriteStep::replace(std::string from, std::string to) {
    RewriteStep step(Kind::replace);
    step.from_ = std::move(from);
    step.to_ = std::move(to);
    return step;
}

RewriteStep RewriteStep::replace_pattern(Regex pattern, std::string to) {
    RewriteStep step(Kind::replace_pattern);
    step.pattern_ = std::move(pattern);
    step.to_ = std::move(to);
    return step;
}

std::string RewriteStep::rewritten(std::string_view text) const {
    if (kind_ == Kind::normal_form) return normalized(text, form_);
    if (kind_ == Kind::replace) return replace_all(text, from_, to_);
    std::string out;
    std::size_t end = 0;
    pattern_->each_match(text, false, [&](std::size_t match_begin, std::size_t match_end) {
        out.append(text.substr(end, match_begin - end)).append(to_);
        end = match_end;
        return true;
    });
    return out.append(text.substr(end));
}

bool RewriteStep::apply(Segment& segment) const {
    if (segment.text.empty()) return true;
    if (kind_ == Kind::prepend) {
        const bool there = !from_.empty() && segment.text.starts_with(from_);
        if (there || segment.continues || (document_only_ && !segment.begins_document)) return true;
        segment.text.insert(0, to_);
        if (segment.open()) segment.cut += to_.size();
        return true;
    }
    if (!segment.open()) {
        segment.text = rewritten(segment.text);
        return true;
    }
    const std::string_view head = std::string_view(segment.text).substr(0, segment.cut);
    const std::string_view tail = std::string_view(segment.text).substr(segment.cut);
    const bool keeps =
        kind_ == Kind::normal_form ? keeps_normal_forms(head, tail) : kind_ == Kind::replace && characters(from_) == 1;
    if (!keeps) return false;
    std::string text = rewritten(head);
    segment.cut = text.size();
    segment.text = text += rewritten(tail);
    return true;
}

bool SplitStep::split(std::string_view text, std::size_t cut, std::vector<Range>& pieces) const {
    const bool cutting = cut != Segment::kNoCut;
    const bool open = cutting && !before_each_character;  // a single character depends on nothing behind it
    Parts found;
    // One part behind the cut is enough to know what those before it are joined with.
    const bool settled = pattern_.each_match(text, open, [&](std::size_t begin, std::size_t end) {
        found.add_match({begin, end});
        return begin < cut;
    });
    if (!open) found.add_rest(text.size());
    const std::vector<Part> parts = found.take(invert_);

    pieces.clear();
    const auto push = [&](const Part& part) { pieces.push_back(part.range); };
    bool previous = false;
    if (behavior_ == Behavior::merged_with_next) {
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
            if (part->match && !previous && !pieces.empty())
                pieces.back().begin = part->range.begin;
            else
                push(*part);
            previous = part->match;
        }
        std::reverse(pieces.begin(), pieces.end());
    } else {
        for (const Part& part : parts) {
            const bool joined = behavior_ == Behavior::contiguous             ? part.match == previous
                                : behavior_ == Behavior::merged_with_previous ? part.match && !previous
                                                                              : false;
            if (joined && !pieces.empty())
                pieces.back().end = part.range.end;
            else if (behavior_ != Behavior::removed || !part.match)
                push(part);
            previous = part.match;
        }
    }
    std::erase_if(pieces, [](const Range& range) { return range.begin == range.end; });
    if (!cutting) return true;

    // What ends at the cut or before it stays, provided that nothing reaches over it.
    bool between = settled;
    const auto over_cut = [&](const Range& range) { return range.begin < cut && range.end > cut; };
    for (const Part& part : parts) between = between && (before_each_character || !over_cut(part.range));
    for (Range& piece : pieces) {
        if (!over_cut(piece)) continue;
        between = between && before_each_character;
        piece.end = cut;
    }
    std::erase_if(pieces, [&](const Range& range) { return range.begin >= cut; });
    return between;
}

}  // namespace invar::text
