#include "invar/kernels/cpu/onednn.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "invar/core/error.h"
#include "invar/core/memory.h"

namespace invar::onednn {

namespace {

using dnnl::memory;
using Dims = memory::dims;
using Tag = memory::format_tag;

// Virtual machines were seen to promise AMX without the leaf of CPUID that describes its tiles (0x1d). oneDNN 2.6 takes
// its tiles from there: it sets up none, and the first product of BF16 ends the program. Held back before oneDNN is
// asked for anything, which it wants; what the user has set stands.
[[maybe_unused]] const bool kAmxIsHeldBack = [] {
#if defined(__x86_64__)
    if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) return false;
    constexpr unsigned kFeatures = 7, kAmxTile = 1u << 24, kTiles = 0x1d;
    unsigned a = 0, b = 0, c = 0, d = 0, tiles = 0;
    if (__get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) == 0 || (d & kAmxTile) == 0) return false;
    if (__get_cpuid_count(kTiles, 1, &tiles, &b, &c, &d) != 0 && tiles != 0) return false;
    return dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16) == dnnl::status::success;
#else
    return false;
#endif
}();

dnnl::engine& engine() {
    static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    return cpu;
}

dnnl::stream& stream() {
    thread_local dnnl::stream cpu(engine());
    return cpu;
}

memory::data_type type_of(Dtype dtype) {
    return dtype == Dtype::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// Scratch memory comes from our own allocator, so that it is counted.
dnnl::primitive_attr user_scratch() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
}

struct Workspace {
    explicit Workspace(const memory::desc& desc)
        : storage(desc.get_size(), Device::cpu(), Purpose::workspace), mem(desc, engine(), storage.data()) {}
    Storage storage;
    memory mem;
};

// --- the one difference between oneDNN 2 and 3: how a primitive is described ---

template <class Primitive, class... Args>
typename Primitive::primitive_desc describe(const dnnl::primitive_attr& attributes, Args&&... args) {
#if DNNL_VERSION_MAJOR >= 3
    return typename Primitive::primitive_desc(engine(), std::forward<Args>(args)..., attributes);
#else
    return
        typename Primitive::primitive_desc(typename Primitive::desc(std::forward<Args>(args)...), attributes, engine());
#endif
}

template <class Primitive, class Hint, class... Args>
typename Primitive::primitive_desc describe_backward(const Hint& hint, const dnnl::primitive_attr& attributes,
                                                     Args&&... args) {
#if DNNL_VERSION_MAJOR >= 3
    return typename Primitive::primitive_desc(engine(), std::forward<Args>(args)..., hint, attributes);
#else
    return typename Primitive::primitive_desc(typename Primitive::desc(std::forward<Args>(args)...), attributes,
                                              engine(), hint);
#endif
}

struct ConvLayout {
    memory::desc x, y, w_user, w_any, bias;
    Dims strides, dilation, pad_low, pad_high;
    bool whole;  // all of the input takes part

    ConvLayout(const ConvSpec& s, Dtype dtype, Dtype weight_dtype) {
        const auto type = type_of(dtype), weight = type_of(weight_dtype);
        // oneDNN takes windows that leave less than a stride of the input unused, at its end; a larger rest, the
        // output padding of a transposed convolution, is left out.
        const std::int64_t used_h = s.reach_h() - s.pad_h + s.stride_h <= s.in_h ? s.reach_h() - s.pad_h : s.in_h;
        const std::int64_t used_w = s.reach_w() - s.pad_w + s.stride_w <= s.in_w ? s.reach_w() - s.pad_w : s.in_w;
        whole = used_h == s.in_h && used_w == s.in_w;
        x = memory::desc({s.batch, s.in_c, used_h, used_w}, type,
                         Dims{s.in_h * s.in_w * s.in_c, 1, s.in_w * s.in_c, s.in_c});
        y = memory::desc({s.batch, s.out_c, s.out_h, s.out_w}, type, Tag::nhwc);
        if (s.groups == 1) {
            const Dims dims{s.out_c, s.in_c, s.k_h, s.k_w};
            w_user = memory::desc(dims, weight, Tag::ohwi);
            w_any = memory::desc(dims, type, Tag::any);
        } else {
            const Dims dims{s.groups, s.out_c / s.groups, s.in_c / s.groups, s.k_h, s.k_w};
            w_user = memory::desc(dims, weight, Tag::gohwi);
            w_any = memory::desc(dims, type, Tag::any);
        }
        bias = memory::desc({s.out_c}, memory::data_type::f32, Tag::x);
        strides = {s.stride_h, s.stride_w};
        dilation = {s.dilation_h - 1, s.dilation_w - 1};
        pad_low = {s.pad_h, s.pad_w};
        // Whatever the last window reaches beyond the input; negative where the input's end is not used.
        pad_high = {s.reach_h() - used_h - s.pad_h, s.reach_w() - used_w - s.pad_w};
    }
};

enum class Pass { forward, forward_bias, backward_data, backward_weights, backward_weights_bias };

struct ConvPrimitive {
    dnnl::primitive primitive;
    memory::desc weights, scratch;
};

dnnl::convolution_forward::primitive_desc describe_forward(const ConvLayout& l, bool bias) {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    return bias ? describe<dnnl::convolution_forward>(user_scratch(), kind, algorithm, l.x, l.w_any, l.bias, l.y,
                                                      l.strides, l.dilation, l.pad_low, l.pad_high)
                : describe<dnnl::convolution_forward>(user_scratch(), kind, algorithm, l.x, l.w_any, l.y, l.strides,
                                                      l.dilation, l.pad_low, l.pad_high);
}

ConvPrimitive make_conv(const ConvSpec& spec, Dtype dtype, Pass pass) {
    const ConvLayout l(spec, dtype, dtype);
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const auto forward = describe_forward(l, pass == Pass::forward_bias);
    switch (pass) {
        case Pass::forward:
        case Pass::forward_bias:
            return {dnnl::convolution_forward(forward), forward.weights_desc(), forward.scratchpad_desc()};
        case Pass::backward_data: {
            const auto desc = describe_backward<dnnl::convolution_backward_data>(
                forward, user_scratch(), algorithm, l.x, l.w_any, l.y, l.strides, l.dilation, l.pad_low, l.pad_high);
            return {dnnl::convolution_backward_data(desc), desc.weights_desc(), desc.scratchpad_desc()};
        }
        case Pass::backward_weights:
        case Pass::backward_weights_bias:
            break;
    }
    using BackwardWeights = dnnl::convolution_backward_weights;
    // Weight gradients leave the primitive in FP32, also from BF16 operands.
    memory::desc gw_any(l.w_any);
    if (dtype != Dtype::f32) gw_any = ConvLayout(spec, Dtype::f32, Dtype::f32).w_any;
    const auto desc = pass == Pass::backward_weights_bias
                          ? describe_backward<BackwardWeights>(forward, user_scratch(), algorithm, l.x, gw_any, l.bias,
                                                               l.y, l.strides, l.dilation, l.pad_low, l.pad_high)
                          : describe_backward<BackwardWeights>(forward, user_scratch(), algorithm, l.x, gw_any, l.y,
                                                               l.strides, l.dilation, l.pad_low, l.pad_high);
    return {BackwardWeights(desc), desc.diff_weights_desc(), desc.scratchpad_desc()};
}

// Making a primitive compiles code; each shape is made once a thread.
const ConvPrimitive& conv(const ConvSpec& spec, Dtype dtype, Pass pass) {
    struct Key {
        ConvSpec spec;
        Dtype dtype;
        Pass pass;
        bool operator==(const Key&) const = default;
    };
    struct Hash {
        std::size_t operator()(const Key& key) const {
            std::size_t hash = std::size_t(key.dtype) * 31 + std::size_t(key.pass);
            const ConvSpec& s = key.spec;
            for (const std::int64_t v :
                 {s.batch, s.in_h, s.in_w, s.in_c, s.out_c, s.k_h, s.k_w, s.stride_h, s.pad_h, s.dilation_h, s.groups})
                hash = hash * 1000003 + std::size_t(v);
            return hash;
        }
    };
    thread_local std::unordered_map<Key, ConvPrimitive, Hash> made;
    const Key key{spec, dtype, pass};
    const auto found = made.find(key);
    if (found != made.end()) return found->second;
    return made.emplace(key, make_conv(spec, dtype, pass)).first->second;
}

memory at(const memory::desc& desc, const void* data) {
    return memory(desc, engine(), const_cast<void*>(data));
}

// The weights in the layout the primitive asked for.
void reorder(const memory& from, const memory& to) {
    memory source(from), sink(to);
    dnnl::reorder(source, sink).execute(stream(), source, sink);
}

// Whether a window's weight at place `tap` meets any of the input, rather than padding alone.
bool meets_input(std::int64_t tap, std::int64_t dilation, std::int64_t pad, std::int64_t stride, std::int64_t out,
                 std::int64_t in) {
    for (std::int64_t i = 0; i < out; ++i)
        if (const std::int64_t at = i * stride + tap * dilation - pad; at >= 0 && at < in) return true;
    return false;
}

// oneDNN's BF16 kernels leave the gradients of weights that meet padding alone as they found them: they are 0.
void zero_weights_in_padding(const ConvSpec& s, float* gw) {
    const std::int64_t width = s.in_c / s.groups;
    for (std::int64_t r = 0; r < s.k_h; ++r)
        for (std::int64_t c = 0; c < s.k_w; ++c) {
            if (meets_input(r, s.dilation_h, s.pad_h, s.stride_h, s.out_h, s.in_h) &&
                meets_input(c, s.dilation_w, s.pad_w, s.stride_w, s.out_w, s.in_w))
                continue;
            for (std::int64_t o = 0; o < s.out_c; ++o)
                std::fill_n(gw + ((o * s.k_h + r) * s.k_w + c) * width, width, 0.0f);
        }
}

// The pixels that windows of 1x1 hit, dense; zeros where they hit padding.
void gather_pixels(const ConvSpec& s, std::size_t width, const std::byte* x, std::byte* pixels) {
    const std::size_t pixel = std::size_t(s.in_c) * width;
    for (std::int64_t n = 0; n < s.batch; ++n)
        for (std::int64_t h = 0; h < s.out_h; ++h)
            for (std::int64_t w = 0; w < s.out_w; ++w, pixels += pixel) {
                const std::int64_t down = h * s.stride_h - s.pad_h, right = w * s.stride_w - s.pad_w;
                if (down < 0 || right < 0 || down >= s.in_h || right >= s.in_w)
                    std::memset(pixels, 0, pixel);
                else
                    std::memcpy(pixels, x + std::size_t((n * s.in_h + down) * s.in_w + right) * pixel, pixel);
            }
}

// The one place where what oneDNN throws becomes our error; what it would not do is named.
[[noreturn]] void refused(const dnnl::error& e, const std::string& what) {
    fail("oneDNN refused {}: {} (status {})", what, e.what(), int(e.status));
}
[[noreturn]] void refused(const dnnl::error& e, const ConvSpec& s) {
    refused(e,
            fmt::format("a convolution of [{}, {}, {}, {}] to [{}, {}, {}, {}] by windows of ({}, {}) in {} groups",
                        s.batch, s.in_h, s.in_w, s.in_c, s.batch, s.out_h, s.out_w, s.out_c, s.k_h, s.k_w, s.groups));
}

}  // namespace

bool native(Dtype dtype) {
    if (dtype != Dtype::bf16) return false;
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    // The enumeration is a bit mask in which each set contains those it builds on.
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<unsigned>(isa) & wanted) == wanted;
}

const char* description() {
    if (!native(Dtype::bf16)) return "16-bit operands widened to FP32";
    const auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    const bool has_amx = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
    return has_amx ? "native BF16 (AMX)" : "native BF16 (AVX512-BF16)";
}

double flops_per_cycle(Dtype dtype) {
#if defined(__x86_64__)
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto has = [&](dnnl::cpu_isa set) {
        return (isa & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
    };
    // Two units of as many lanes as a register has, a multiplication and an addition in each; AMX multiplies tiles.
    const double f32 = has(dnnl::cpu_isa::avx512_core) ? 64 : has(dnnl::cpu_isa::avx2) ? 32 : 0;
    if (!native(dtype)) return f32;
    return has(dnnl::cpu_isa::avx512_core_amx) ? 1024 : 2 * f32;
#else
    static_cast<void>(dtype);
    return 0;
#endif
}

void sgemm(const Product& p) {
    const auto status = dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f, p.a,
                                   p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
    check(status == dnnl_success, "oneDNN refused a product of [{}, {}] and [{}, {}] (status {})", p.m, p.k, p.k, p.n,
          int(status));
}

namespace {

memory::desc desc_of(const View& v) {
    return memory::desc({v.size[0], v.size[1], v.size[2]}, type_of(v.dtype),
                        Dims{v.stride[0], v.stride[1], v.stride[2]});
}

memory::desc row_of(const View& bias, const View& out) {
    return memory::desc({1, 1, out.size[2]}, type_of(bias.dtype), Tag::abc);
}

dnnl::matmul::primitive_desc describe_product(const View& a, const View& b, const View& bias, const View& out,
                                              bool accumulate) {
    dnnl::primitive_attr attributes = user_scratch();
    if (accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attributes.set_post_ops(sum);
    }
    return bias ? describe<dnnl::matmul>(attributes, desc_of(a), desc_of(b), row_of(bias, out), desc_of(out))
                : describe<dnnl::matmul>(attributes, desc_of(a), desc_of(b), desc_of(out));
}

}  // namespace

void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) try {
    const auto primitive_desc = describe_product(a, b, bias, out, accumulate);
    Workspace scratch(primitive_desc.scratchpad_desc());
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(desc_of(a), a.data)},
                                              {DNNL_ARG_WEIGHTS, at(desc_of(b), b.data)},
                                              {DNNL_ARG_DST, at(desc_of(out), out.data)},
                                              {DNNL_ARG_SCRATCHPAD, scratch.mem}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, at(row_of(bias, out), bias.data));
    dnnl::matmul(primitive_desc).execute(stream(), arguments);
    stream().wait();
} catch (const dnnl::error& e) {
    refused(e, fmt::format("a product of {} matrices [{}, {}] and [{}, {}]", a.size[0], a.size[1], a.size[2], b.size[1],
                           b.size[2]));
}

void conv_forward(const ConvSpec& spec, Dtype dtype, const void* x, const void* w, const float* bias, void* y) try {
    const ConvLayout l(spec, dtype, dtype);
    const ConvPrimitive& c = conv(spec, dtype, bias ? Pass::forward_bias : Pass::forward);
    Workspace weights(c.weights), scratch(c.scratch);
    reorder(at(l.w_user, w), weights.mem);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(l.x, x)},
                                              {DNNL_ARG_WEIGHTS, weights.mem},
                                              {DNNL_ARG_DST, at(l.y, y)},
                                              {DNNL_ARG_SCRATCHPAD, scratch.mem}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, at(l.bias, bias));
    c.primitive.execute(stream(), arguments);
    stream().wait();
} catch (const dnnl::error& e) {
    refused(e, spec);
}

void conv_backward_data(const ConvSpec& spec, Dtype dtype, const void* gy, const void* w, void* gx) try {
    const ConvLayout l(spec, dtype, dtype);
    if (!l.whole)  // what no window reaches
        std::memset(gx, 0, std::size_t(spec.batch * spec.in_h * spec.in_w * spec.in_c) * size_of(dtype));
    const ConvPrimitive& c = conv(spec, dtype, Pass::backward_data);
    Workspace weights(c.weights), scratch(c.scratch);
    reorder(at(l.w_user, w), weights.mem);
    c.primitive.execute(stream(), {{DNNL_ARG_DIFF_DST, at(l.y, gy)},
                                   {DNNL_ARG_WEIGHTS, weights.mem},
                                   {DNNL_ARG_DIFF_SRC, at(l.x, gx)},
                                   {DNNL_ARG_SCRATCHPAD, scratch.mem}});
    stream().wait();
} catch (const dnnl::error& e) {
    refused(e, spec);
}

void conv_backward_weights(const ConvSpec& spec, Dtype dtype, const void* x, const void* gy, float* gw, float* gb) try {
    // For windows of 1x1 with a stride, over channels that do not come in sixteens, oneDNN 2.6 writes beyond the
    // scratch memory that it asks for (AVX-512; up to three times as much). Without a stride it does not.
    if (spec.k_h == 1 && spec.k_w == 1 && (spec.stride_h > 1 || spec.stride_w > 1) && spec.in_c % 16 != 0) {
        ConvSpec dense = spec;
        dense.in_h = spec.out_h, dense.in_w = spec.out_w;
        dense.stride_h = dense.stride_w = 1, dense.pad_h = dense.pad_w = 0;
        const std::int64_t count = spec.batch * spec.out_h * spec.out_w * spec.in_c;
        const Storage pixels(std::size_t(count) * size_of(dtype), Device::cpu(), Purpose::workspace);
        gather_pixels(spec, size_of(dtype), static_cast<const std::byte*>(x), static_cast<std::byte*>(pixels.data()));
        return conv_backward_weights(dense, dtype, pixels.data(), gy, gw, gb);
    }
    const ConvLayout l(spec, dtype, Dtype::f32);
    const ConvPrimitive& c = conv(spec, dtype, gb ? Pass::backward_weights_bias : Pass::backward_weights);
    Workspace weights(c.weights), scratch(c.scratch);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(l.x, x)},
                                              {DNNL_ARG_DIFF_DST, at(l.y, gy)},
                                              {DNNL_ARG_DIFF_WEIGHTS, weights.mem},
                                              {DNNL_ARG_SCRATCHPAD, scratch.mem}};
    if (gb) arguments.emplace(DNNL_ARG_DIFF_BIAS, at(l.bias, gb));
    c.primitive.execute(stream(), arguments);
    stream().wait();
    reorder(weights.mem, at(l.w_user, gw));
    stream().wait();
    zero_weights_in_padding(spec, gw);
} catch (const dnnl::error& e) {
    refused(e, spec);
}

std::size_t matmul_scratch(const View& a, const View& b, const View& bias, const View& out, bool accumulate) try {
    return describe_product(a, b, bias, out, accumulate).scratchpad_desc().get_size();
} catch (const dnnl::error& e) {
    refused(e, "a product");
}

std::size_t conv_scratch(const ConvSpec& spec, Dtype dtype, ConvGradient gradient, bool bias) try {
    Pass pass = bias ? Pass::forward_bias : Pass::forward;
    if (gradient == ConvGradient::data) pass = Pass::backward_data;
    if (gradient == ConvGradient::weights) pass = bias ? Pass::backward_weights_bias : Pass::backward_weights;
    const ConvPrimitive& c = conv(spec, dtype, pass);
    return c.weights.get_size() + c.scratch.get_size();
} catch (const dnnl::error& e) {
    refused(e, spec);
}

}  // namespace invar::onednn
