#include "invar/ops/index.h"

#include <algorithm>
#include <numeric>

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

// All picks at once: the dimensions that are picked from become one, whose rows are then looked up.
Tensor pick_rows(const Tensor& x, const std::vector<Pick>& picks) {
    Shape picked;
    std::vector<int> order, rest;
    std::int64_t rows = 1;
    Tensor ids;
    for (const Pick& pick : picks) {
        picked = broadcast(picked, pick.places.shape(), "index");
        order.push_back(pick.axis);
        const std::int64_t size = x.size(pick.axis);
        const Tensor places = from_start(pick.places, size);
        ids = ids ? ids * whole_number(size, x.device()) + places : places;
        rows *= size;
    }
    Shape left;
    for (int i = 0; i < x.rank(); ++i) {
        if (std::find(order.begin(), order.end(), i) != order.end()) continue;
        rest.push_back(i);
        left.push_back(x.size(i));
    }
    order.insert(order.end(), rest.begin(), rest.end());
    const Tensor table = reshape(permute(x, order), {rows, left.numel()});
    Shape shape = picked;
    for (const std::int64_t size : left) shape.push_back(size);
    const Tensor found = reshape(rows_at(table, expand(ids, picked)), shape);

    // Picks that stand side by side are replaced where they stand; otherwise what they pick comes first.
    const int first = picks.front().axis, count = int(picks.size());
    const bool beside = picks.back().axis - first == count - 1;
    if (!beside || first == 0) return found;
    std::vector<int> back;
    for (int i = 0; i < first; ++i) back.push_back(picked.rank() + i);
    for (int i = 0; i < picked.rank(); ++i) back.push_back(i);
    for (int i = picked.rank() + first; i < shape.rank(); ++i) back.push_back(i);
    return permute(found, back);
}

}  // namespace

Tensor index(const Tensor& x, const Indices& indices) {
    Reader reader(x);
    reader.read(indices);
    const Tensor view = reader.view();
    return reader.picks().empty() ? view : pick_rows(view, reader.picks());
}

void copy_(const Tensor& to, const Tensor& from) {
    for (const Tensor* tensor : {&to, &from})
        if (GradMode::recording() && tensor->requires_grad())
            fail("copy_: {} takes part in a gradient, which would not know of it; write inside NoGrad", tensor->str());
    if (broadcast(to.shape(), from.shape(), "copy_") != to.shape())
        fail("copy_: {} does not fit in {}", from.str(), to.str());
    for (int d = 0; d < to.shape().rank(); ++d)
        check(to.strides()[d] != 0 || to.size(d) <= 1, "copy_: several places of {} are one in memory", to.str());
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

}  // namespace ops

Tensor Tensor::operator[](const Indices& indices) const {
    return ops::index(*this, indices);
}

}  // namespace invar
