#include "invar/ops/index.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/indexing.h"
#include "invar/ops/pointwise.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"
#include "invar/ops/to.h"

namespace invar {

namespace ops {

namespace {

// A strided window of the input; its gradient lies in the same window of zeros.
struct IndexView {
    static constexpr const char* kName = "index";
    static constexpr const char* kDoc = "x[...], a view";
    static constexpr CastClass kCast = CastClass::keep;
    // Per dimension of the input: where the window begins, and by which steps it goes on.
    Shape from, begin;
    // Per dimension of the result: the input's dimension it runs along (-1: a new one), and how.
    Shape shape, along, step;

    Tensor window(const Tensor& x) const {
        std::int64_t offset = 0;
        for (int i = 0; shape.numel() > 0 && i < from.rank(); ++i) offset += begin[i] * x.strides()[i];
        Shape strides;
        for (int i = 0; i < shape.rank(); ++i)
            strides.push_back(along[i] < 0 ? 1 : x.strides()[int(along[i])] * step[i]);
        return x.as_strided(offset, shape, strides);
    }
    Tensor forward(Context&, const Tensors& in) { return window(in[0]); }
    Tensors backward(Context&, const Tensor& g) {
        Tensor gx = filled(from, g.dtype(), g.device(), 0);
        kernels_for(g.device()).copy(g.view(), window(gx).view());
        return {gx};
    }
};

// Dimension `axis` of the view is picked from by `places`, whole numbers in [-size, size).
struct Pick {
    int axis;
    Tensor places;
};

int dimensions_of(const Index& index) {
    if (std::holds_alternative<Ellipsis>(index.what) || std::holds_alternative<NewAxis>(index.what)) return 0;
    const Tensor* tensor = std::get_if<Tensor>(&index.what);
    return tensor != nullptr && tensor->dtype() == Dtype::boolean ? tensor->rank() : 1;
}

// The places where a mask is true, one list of whole numbers for each of its dimensions, as NumPy's nonzero().
Tensors true_places(const Tensor& mask) {
    const Tensor flat = dense(mask.on_host());
    std::vector<std::vector<std::int64_t>> places(std::size_t(mask.rank()));
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
        if (flat.data<std::uint8_t>()[i] == 0) continue;
        std::int64_t rest = i;
        for (int d = mask.rank() - 1; d >= 0; --d) {
            places[std::size_t(d)].push_back(rest % mask.size(d));
            rest /= mask.size(d);
        }
    }
    Tensors lists;
    for (const std::vector<std::int64_t>& list : places)
        lists.push_back(Tensor::from(list, {std::int64_t(list.size())}));
    return lists;
}

// Reads the indices one after the other, and keeps what the view cannot do, the picks, for later.
class Reader {
  public:
    explicit Reader(const Tensor& x) : x_(x), view_{x.shape(), Shape::filled(x.rank(), 0), {}, {}, {}} {}

    void read(const Indices& indices) {
        int named = 0, ellipses = 0;
        for (const Index& index : indices.all) {
            named += dimensions_of(index);
            ellipses += std::holds_alternative<Ellipsis>(index.what);
        }
        if (ellipses > 1) fail("index: more than one Ellipsis for {}", x_.str());
        if (named > x_.rank()) fail("index: {} indices for {}", named, x_.str());
        const int rest = x_.rank() - named;
        for (const Index& index : indices.all) std::visit([&](const auto& what) { take(what, rest); }, index.what);
        while (dim_ < x_.rank()) whole();
    }
    // x itself where there is nothing but picks to be done: a view would cost a pass over its gradient.
    Tensor view() const { return !picks_.empty() && is_whole() ? x_ : apply(IndexView(view_), {x_}); }
    const std::vector<Pick>& picks() const { return picks_; }

  private:
    void take(std::int64_t at, int) {
        const std::int64_t size = x_.size(dim_), place = at < 0 ? at + size : at;
        if (place < 0 || place >= size) fail("index: {} is outside dimension {} of {}", at, dim_, x_.str());
        view_.begin[dim_++] = place;
    }
    void take(const Slice& slice, int) {
        if (slice.step < 1) fail("index: the step of a slice must be at least 1, not {}", slice.step);
        const std::int64_t size = x_.size(dim_);
        const auto clip = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
        const std::int64_t begin = clip(slice.begin.value_or(0)), end = clip(slice.end.value_or(size));
        view_.begin[dim_] = begin;
        extend(end > begin ? (end - begin - 1) / slice.step + 1 : 0, dim_++, slice.step);
    }
    void take(Ellipsis, int rest) {
        for (int i = 0; i < rest; ++i) whole();
    }
    void take(NewAxis, int) { extend(1, -1, 1); }
    void take(const Tensor& tensor, int) {
        if (tensor.dtype() != Dtype::boolean) return pick(tensor);
        for (int i = 0; i < tensor.rank(); ++i)
            if (tensor.size(i) != x_.size(dim_ + i))
                fail("index: a mask {} over dimensions {} to {} of {}", tensor.shape().str(), dim_,
                     dim_ + tensor.rank() - 1, x_.str());
        if (tensor.rank() == 0) fail("index: a mask needs at least one dimension");
        for (const Tensor& places : true_places(tensor)) pick(places);
    }
    void pick(const Tensor& places) {
        if (places.dtype() != Dtype::i64) fail("index: indices must be i64 or bool, not {}", places.str());
        const std::int64_t size = x_.size(dim_);
        if (places.device().is_cpu())
            for (const std::int64_t at : places.to_vector<std::int64_t>())
                if (at < -size || at >= size) fail("index: {} is outside dimension {} of {}", at, dim_, x_.str());
        picks_.push_back({view_.shape.rank(), to(places, x_.device())});
        whole();
    }
    bool is_whole() const {
        bool whole = view_.shape == view_.from;
        for (int i = 0; whole && i < x_.rank(); ++i) whole = view_.along[i] == i;
        return whole;
    }
    void whole() { extend(x_.size(dim_), dim_, 1), ++dim_; }
    void extend(std::int64_t size, int along, std::int64_t step) {
        view_.shape.push_back(size), view_.along.push_back(along), view_.step.push_back(step);
    }

    const Tensor& x_;
    int dim_ = 0;
    IndexView view_;
    std::vector<Pick> picks_;
};

Tensor whole_number(std::int64_t value, Device device) {
    return filled({}, Dtype::i64, device, double(value));
}

// places, with those that count from the end made to count from the start.
Tensor from_start(const Tensor& places, std::int64_t size) {
    const auto number = [&](std::int64_t value) { return whole_number(value, places.device()); };
    const Tensor sign = maximum(minimum(places, number(0)), number(-1));  // -1 or 0
    return places - sign * number(size);
}

// All picks at once: the dimensions that are picked from become one, whose rows are then looked up or written.
class Picking {
  public:
    Picking(const Tensor& view, const std::vector<Pick>& picks) : view_(view) {
        for (const Pick& pick : picks) {
            picked_ = broadcast(picked_, pick.places.shape(), "index");
            order_.push_back(pick.axis);
            const std::int64_t size = view.size(pick.axis);
            const Tensor places = from_start(pick.places, size);
            ids_ = ids_ ? ids_ * whole_number(size, view.device()) + places : places;
            rows_ *= size;
        }
        const auto is_picked = [&](int axis) { return std::ranges::find(order_, axis) != order_.end(); };
        std::vector<int> rest;
        for (int i = 0; i < view.rank(); ++i) {
            if (is_picked(i)) continue;
            rest.push_back(i);
            left_.push_back(view.size(i));
        }
        find_place(picks, rest);
        order_.insert(order_.end(), rest.begin(), rest.end());
        ids_ = expand(ids_, picked_);
    }

    Tensor read() const {
        const Tensor table = reshape(permute(view_, order_), {rows_, left_.numel()});
        const Tensor found = reshape(rows_at(table, ids_), rows_first());
        return place_ == 0 ? found : permute(found, order_of_result());
    }
    // Into the view's own memory. Where several picks fall on one place, the last one stays.
    void write(const Tensor& values) const {
        const std::vector<int> order = order_of_result();
        Shape shape;
        for (const int axis : order) shape.push_back(rows_first()[axis]);
        if (broadcast(shape, values.shape(), "index_put_") != shape)
            fail("index_put_: {} does not fit in the {} that is picked", values.str(), shape.str());
        std::vector<int> inverse(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) inverse[std::size_t(order[i])] = int(i);
        const Tensor rows = permute(expand(to(converted_to(values, view_.dtype()), view_.device()), shape), inverse);
        const std::vector<std::int64_t> ids = ids_.to_vector<std::int64_t>();
        const std::int64_t width = left_.numel(), count = std::int64_t(ids.size());
        // Each row becomes the last one that was written to it, or stays itself.
        std::vector<std::int64_t> becomes(static_cast<std::size_t>(rows_));
        std::iota(becomes.begin(), becomes.end(), std::int64_t{0});
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t id = ids[std::size_t(i)];
            check(id >= 0 && id < rows_, "index_put_: an index is outside of {}", view_.str());
            becomes[std::size_t(id)] = rows_ + i;
        }
        const Tensor memory = permute(view_, order_);
        const Tensor both = cat({reshape(memory, {rows_, width}), reshape(rows, {count, width})});
        const Tensor after = rows_at(both, to(Tensor::from(becomes, {rows_}), view_.device()));
        kernels_for(view_.device()).copy(reshape(after, memory.shape()).view(), memory.view());
    }

  private:
    // PyTorch's rule: picks that stand side by side are replaced where they stand; otherwise what they pick comes
    // first. A pick by a single number takes its dimension away, as a whole number does, and stands nowhere.
    void find_place(const std::vector<Pick>& picks, const std::vector<int>& rest) {
        std::vector<int> before;  // for each pick that stands somewhere: how many dimensions are kept before it
        for (const Pick& pick : picks)
            if (pick.places.rank() > 0)
                before.push_back(int(std::ranges::count_if(rest, [&](int axis) { return axis < pick.axis; })));
        const bool beside = !before.empty() && before.front() == before.back();
        place_ = beside ? before.front() : 0;
    }
    Shape rows_first() const {
        Shape shape = picked_;
        for (const std::int64_t size : left_) shape.push_back(size);
        return shape;
    }
    std::vector<int> order_of_result() const {
        std::vector<int> order;
        for (int i = 0; i < place_; ++i) order.push_back(picked_.rank() + i);
        for (int i = 0; i < picked_.rank(); ++i) order.push_back(i);
        for (int i = place_; i < left_.rank(); ++i) order.push_back(picked_.rank() + i);
        return order;
    }

    const Tensor& view_;
    Shape picked_, left_;     // what the picks make, and the dimensions that nothing is picked from
    std::vector<int> order_;  // of the view's dimensions, those that are picked from first
    std::int64_t rows_ = 1;   // all of those that are picked from
    Tensor ids_;
    int place_ = 0;  // of what is picked, among the dimensions that are left
};

void refuse_gradients(const char* op, std::initializer_list<const Tensor*> tensors) {
    for (const Tensor* tensor : tensors)
        if (GradMode::recording() && tensor->requires_grad())
            fail("{}: {} takes part in a gradient, which would not know of it; write inside NoGrad", op, tensor->str());
}

void refuse_shared_places(const char* op, const Tensor& to) {
    for (int d = 0; d < to.rank(); ++d)
        if (to.strides()[d] == 0 && to.size(d) > 1) fail("{}: several places of {} are one in memory", op, to.str());
}

}  // namespace

Tensor index(const Tensor& x, const Indices& indices) {
    Reader reader(x);
    reader.read(indices);
    const Tensor view = reader.view();
    return reader.picks().empty() ? view : Picking(view, reader.picks()).read();
}

void index_put_(const Tensor& x, const Indices& indices, const Tensor& values) {
    refuse_gradients("index_put_", {&x, &values});
    const NoGrad no_grad;
    Reader reader(x);
    reader.read(indices);
    const Tensor view = reader.view();
    if (reader.picks().empty()) return copy_(view, values);
    refuse_shared_places("index_put_", x);
    Picking(view, reader.picks()).write(values);
    x.bump_version();
}

void copy_(const Tensor& to, const Tensor& from) {
    refuse_gradients("copy_", {&to, &from});
    if (broadcast(to.shape(), from.shape(), "copy_") != to.shape())
        fail("copy_: {} does not fit in {}", from.str(), to.str());
    refuse_shared_places("copy_", to);
    const NoGrad no_grad;
    // What is read must not be written meanwhile.
    Tensor source = from;
    if (from.storage() == to.storage()) {
        source = Tensor::empty(from.shape(), from.dtype(), from.device());
        kernels_for(from.device()).copy(from.view(), source.view());
    }
    kernels_for(to.device()).copy(expanded(ops::to(source, to.device()), to.shape()).view(), to.view());
    to.bump_version();
}

void copy_(Tensor&& to, const Tensor& from) {
    if (to.is_sole_owner())
        fail<UsageError>(
            "copy_: nobody would see what is written to {}: it is a copy, such as index tensors and masks make; write "
            "index_put_(x, indices, values)",
            to.str());
    copy_(std::as_const(to), from);
}

}  // namespace ops

Tensor Tensor::operator[](const Indices& indices) const {
    return ops::index(*this, indices);
}

}  // namespace invar
