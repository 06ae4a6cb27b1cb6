#include "invar/io/safetensors_parts.h"

#include <algorithm>
#include <cstring>

#include "invar/core/error.h"
#include "invar/io/checksum.h"
#include "invar/io/safetensors_sums.h"

namespace invar {

namespace {

constexpr std::size_t kChunk = std::size_t(1) << 20;  // bytes that are put in order at a time

// How the elements of a tensor lie in the file: rows in the order of memory, and within a row by strides.
struct RowOrder {
    std::int64_t row;                 // elements
    Shape size;                       // of a row, in memory
    std::vector<std::int64_t> place;  // in the file, by each axis of memory

    explicit RowOrder(const TensorPart& part) {
        const bool rows = part.permutation[0] == 0;  // the first axis is the same in both
        const std::size_t first = rows ? 1 : 0, axes = part.permutation.size();
        row = 1;
        place.resize(axes - first);
        for (std::size_t k = axes; k-- > first;) {
            const int axis = part.permutation[k];
            place[std::size_t(axis) - first] = row;
            row *= part.view[axis];
        }
        for (std::size_t axis = first; axis < axes; ++axis) size.push_back(part.view[int(axis)]);
    }

    // Calls visit(element of the file's row) for elements `from` to `to` of memory's.
    template <class Visit>
    void for_each(std::int64_t from, std::int64_t to, Visit&& visit) const {
        const int axes = int(place.size());
        std::vector<std::int64_t> index(place.size());
        std::int64_t at = 0;
        for (std::int64_t rest = from, k = axes - 1; k >= 0; --k) {
            index[std::size_t(k)] = rest % size[int(k)];
            rest /= size[int(k)];
            at += index[std::size_t(k)] * place[std::size_t(k)];
        }
        for (std::int64_t i = from; i < to; ++i) {
            visit(at);
            for (int k = axes - 1; k >= 0; --k) {
                const auto axis = std::size_t(k);
                at += place[axis];
                if (++index[axis] < size[k]) break;
                at -= index[axis] * place[axis];
                index[axis] = 0;
            }
        }
    }
};

class PartWriter {
  public:
    PartWriter(const Descriptor& file, const SafetensorsLayout& layout)
        : file_(file), layout_(layout), added_(layout.entries().size()) {}

    void write(const TensorPart& part) {
        const std::size_t index = layout_.index_of(part.name);
        entry_ = &layout_.entries()[index];
        sum_ = &added_[index];
        check(part.values.dtype() == entry_->dtype && part.values.is_contiguous() && part.values.device().is_cpu(),
              "a part of tensor {} cannot be written as it is: {}", Quoted{part.name}, part.values.str());
        const std::size_t width = size_of(entry_->dtype);
        const std::uint64_t begin = std::uint64_t(part.from) * width;
        check(begin + part.values.bytes() <= entry_->end - entry_->begin, "tensor {} has no elements {} to {}",
              Quoted{part.name}, part.from, part.from + part.values.numel());
        const auto* const bytes = static_cast<const char*>(part.values.raw());
        if (part.permutation.empty()) return put(begin, {bytes, part.values.bytes()});
        switch (width) {
            case 1:
                return reorder<std::uint8_t>(part);
            case 2:
                return reorder<std::uint16_t>(part);
            case 4:
                return reorder<std::uint32_t>(part);
            default:
                return reorder<std::uint64_t>(part);
        }
    }

    std::vector<std::uint32_t> take_added() { return std::move(added_); }

  private:
    // At this byte of the tensor.
    void put(std::uint64_t begin, std::string_view bytes) {
        add(begin, bytes);
        file_.write_at(layout_.data_begin() + entry_->begin + begin, bytes);
    }
    void add(std::uint64_t begin, std::string_view bytes) {
        *sum_ ^= crc32c_added(bytes, entry_->end - entry_->begin - begin - bytes.size());
    }

    template <class T>
    void reorder(const TensorPart& part) {
        const RowOrder order(part);
        const T* from = static_cast<const T*>(part.values.raw());
        std::int64_t at = part.from;
        const std::int64_t end = part.from + part.values.numel();
        const std::int64_t most = std::max<std::int64_t>(1, std::int64_t(kChunk / sizeof(T)) / order.row);
        std::vector<T> rows;
        while (at < end) {
            const std::int64_t row = at / order.row, in_row = at % order.row;
            if (in_row > 0 || end - at < order.row) {
                const std::int64_t to = std::min(order.row, in_row + end - at);
                put_some(order, row, in_row, to, from);
                at += to - in_row, from += to - in_row;
                continue;
            }
            const std::int64_t count = std::min(most, (end - at) / order.row);
            rows.resize(std::size_t(count * order.row));
            for (std::int64_t r = 0; r < count; ++r)
                order.for_each(0, order.row, [&](std::int64_t i) { rows[std::size_t(r * order.row + i)] = *from++; });
            put(std::uint64_t(at) * sizeof(T), {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(T)});
            at += count * order.row;
        }
    }

    // A row of which others have the rest: theirs is zero in the sum, and left alone in the file.
    template <class T>
    void put_some(const RowOrder& order, std::int64_t row, std::int64_t from, std::int64_t to, const T* values) {
        std::vector<T> whole(std::size_t(order.row));
        std::vector<std::int64_t> mine;
        order.for_each(from, to, [&](std::int64_t i) {
            whole[std::size_t(i)] = *values++;
            mine.push_back(i);
        });
        const std::uint64_t begin = std::uint64_t(row * order.row) * sizeof(T);
        const auto* const bytes = reinterpret_cast<const char*>(whole.data());
        add(begin, {bytes, whole.size() * sizeof(T)});
        std::sort(mine.begin(), mine.end());
        for (std::size_t i = 0, next = 0; i < mine.size(); i = next) {
            while (next < mine.size() && mine[next] - mine[i] == std::int64_t(next - i)) ++next;
            const std::size_t first = std::size_t(mine[i]) * sizeof(T);
            file_.write_at(layout_.data_begin() + entry_->begin + begin + first,
                           {bytes + first, (next - i) * sizeof(T)});
        }
    }

    const Descriptor& file_;
    const SafetensorsLayout& layout_;
    std::vector<std::uint32_t> added_;
    const TensorEntry* entry_ = nullptr;  // of the part at hand
    std::uint32_t* sum_ = nullptr;
};

}  // namespace

SafetensorsLayout::SafetensorsLayout(std::vector<TensorEntry> entries, const Metadata& metadata) {
    header_.entries = std::move(entries);
    header_.metadata = metadata;
    std::sort(header_.entries.begin(), header_.entries.end(), comes_before);
    std::uint64_t position = 0;
    for (TensorEntry& entry : header_.entries) {
        entry.begin = position;
        entry.end = position += std::uint64_t(entry.shape.numel()) * size_of(entry.dtype);
    }
    data_begin_ = head(std::vector<std::uint32_t>(header_.entries.size())).size();
}

std::string SafetensorsLayout::head(std::span<const std::uint32_t> sums) const {
    SafetensorsHeader header = header_;
    add_sums(header.metadata, sums);
    std::string head = format_header(header);
    seal_head(head);
    return head;
}

std::string SafetensorsLayout::head_of_parts(std::span<const std::uint32_t> added) const {
    std::vector<std::uint32_t> sums(added.begin(), added.end());
    for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] ^= crc32c_of_zeros(header_.entries[i].end - header_.entries[i].begin);
    return head(sums);
}

// How many bytes of data there are, and the header.
std::string SafetensorsLayout::str() const {
    const std::uint64_t data = header_.entries.empty() ? 0 : header_.entries.back().end;
    return fmt::format("{} {}", data, head(std::vector<std::uint32_t>(header_.entries.size())));
}

SafetensorsLayout SafetensorsLayout::parse(std::string_view text) {
    const std::size_t space = text.find(' ');
    const std::string_view head = text.substr(space + 1);
    SafetensorsLayout layout;
    layout.data_begin_ = head.size();
    layout.header_ = parse_header(head.substr(kLengthBytes), std::stoull(std::string(text.substr(0, space))),
                                  "the layout of a file");
    return layout;
}

std::size_t SafetensorsLayout::index_of(const std::string& name) const {
    const auto found = std::ranges::find(header_.entries, name, &TensorEntry::name);
    check(found != header_.entries.end(), "the layout of the file has no tensor {}", Quoted{name});
    return std::size_t(found - header_.entries.begin());
}

std::vector<std::uint32_t> write_parts(const Descriptor& file, const SafetensorsLayout& layout,
                                       std::span<const TensorPart> parts) {
    PartWriter writer(file, layout);
    for (const TensorPart& part : parts) writer.write(part);
    return writer.take_added();
}

}  // namespace invar
