#include "tests/ops/value_cases.h"

#include <limits>

#include "invar/ops/ops.h"

namespace invar::testing {

namespace {

using namespace invar::ops;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLarge = std::int64_t(1) << 53;

Tensor on_device(const Tensor& x) {
    return to(x, case_device());
}
Tensor some(const std::vector<double>& values, Dtype dtype = Dtype::f32) {
    return on_device(Tensor::from(values, {std::int64_t(values.size())}, dtype));
}
Tensor whole(const std::vector<std::int64_t>& values, Dtype dtype = Dtype::i64) {
    return on_device(Tensor::from(values, {std::int64_t(values.size())}, dtype));
}
Tensor whole(const std::vector<std::int64_t>& values, const Shape& shape, Dtype dtype = Dtype::i64) {
    return on_device(Tensor::from(values, shape, dtype));
}

void add_comparisons(std::vector<ValueCase>& all) {
    const auto booleans = [&](const char* name, std::function<Tensor()> run, const std::vector<double>& values) {
        all.push_back({name, std::move(run), Dtype::boolean, {std::int64_t(values.size())}, values});
    };
    const auto a = [] { return some({1, 2, 3, kNan, kNan, kInf, -kInf, -0.0}); };
    const auto b = [] { return some({2, 2, 2, kNan, 1, kInf, kInf, 0}); };
    booleans("eq/ieee", [=] { return a() == b(); }, {0, 1, 0, 0, 0, 1, 0, 1});
    booleans("ne/ieee", [=] { return a() != b(); }, {1, 0, 1, 1, 1, 0, 1, 0});
    booleans("lt/ieee", [=] { return a() < b(); }, {1, 0, 0, 0, 0, 0, 1, 0});
    booleans("le/ieee", [=] { return a() <= b(); }, {1, 1, 0, 0, 0, 1, 1, 1});
    booleans("gt/ieee", [=] { return a() > b(); }, {0, 0, 1, 0, 0, 0, 0, 0});
    booleans("ge/ieee", [=] { return a() >= b(); }, {0, 1, 1, 0, 0, 1, 0, 1});
    const auto c = [] { return some({-1, 0, 0.5, 1, kNan}); };
    booleans("eq/constant", [=] { return c() == 0.5; }, {0, 0, 1, 0, 0});
    booleans("ne/constant", [=] { return 0.5 != c(); }, {1, 1, 0, 1, 1});
    booleans("lt/constant", [=] { return c() < 0.5; }, {1, 1, 0, 0, 0});
    booleans("gt/constant", [=] { return 0.5 < c(); }, {0, 0, 0, 1, 0});
    booleans("le/constant", [=] { return 0.5 >= c(); }, {1, 1, 1, 0, 0});
    booleans("ge/constant", [=] { return 0.5 <= c(); }, {0, 0, 1, 1, 0});
    all.push_back({"lt/broadcast",
                   [] {
                       return whole({0, 1, 2}, {3, 1}) < whole({0, 1, 2, 3}, {2, 1, 2});
                   },
                   Dtype::boolean,
                   {2, 3, 2},
                   {0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1}});
    all.push_back({"eq/nothing", [] { return some({}) == 1; }, Dtype::boolean, {0}, {}});

    // In the dtype that both promote to, rounded to it where it has no place for them.
    booleans("eq/f16_rounds_whole_numbers",
             [] {
                 return whole({2049, 2050}) == some({2048, 2050}, Dtype::f16);
             },
             {1, 1});
    booleans("eq/f32_rounds_whole_numbers", [] { return whole({16777217, 3}) == some({16777216, 3.5}); }, {1, 0});
    booleans("eq/f64_does_not", [] { return whole({16777217, 3}) == some({16777216, 3}, Dtype::f64); }, {0, 1});
    booleans("gt/whole_numbers_to_the_last_digit",
             [] {
                 return whole({kLarge + 1, kLarge}) > whole({kLarge, kLarge});
             },
             {1, 0});
    booleans("gt/constants_too", [] { return whole({kLarge + 1, kLarge}) > kLarge; }, {1, 0});
    booleans("eq/f16_and_bf16", [] { return some({0.1, 256}, Dtype::f16) == some({0.1, 256}, Dtype::bf16); }, {0, 1});
    booleans("lt/u8_and_i32", [] { return whole({255, 3}, Dtype::u8) < whole({256, -1}, Dtype::i32); }, {1, 0});
    booleans("eq/bool_and_u8",
             [] {
                 return whole({1, 0, 1}, Dtype::boolean) == whole({1, 0, 2}, Dtype::u8);
             },
             {1, 1, 0});
    booleans("eq/bool_and_constant", [] { return whole({1, 0}, Dtype::boolean) == 2; }, {0, 0});
    booleans("eq/constant_of_the_tensors_digits",
             [] {
                 return cat({some({0.1}, Dtype::f16) == 0.1, some({0.1}, Dtype::bf16) == 0.1, some({0.1}) == 0.1});
             },
             {1, 1, 1});
    booleans("lt/fraction_beside_whole_numbers", [] { return whole({0, 1, -1}) < 0.5; }, {1, 0, 1});
    booleans("eq/sliced",
             [] {
                 const Tensor x = whole({1, 2, 3, 4, 5, 6}, {2, 3});
                 return reshape(
                     transpose(x, 0, 1) == slice(whole({1, 9, 2, 9, 3, 9, 4, 9, 5, 9, 6, 9}, {3, 4}), 1, 0, 4, 2), {6});
             },
             {1, 0, 0, 0, 0, 1});
}

void add_logic(std::vector<ValueCase>& all) {
    const auto booleans = [&](const char* name, std::function<Tensor()> run, const std::vector<double>& values) {
        all.push_back({name, std::move(run), Dtype::boolean, {std::int64_t(values.size())}, values});
    };
    const auto p = [] { return whole({0, 0, 1, 1}, Dtype::boolean); };
    const auto q = [] { return whole({0, 1, 0, 1}, Dtype::boolean); };
    booleans("logical_and/operator", [=] { return p() & q(); }, {0, 0, 0, 1});
    booleans("logical_or/operator", [=] { return p() | q(); }, {0, 1, 1, 1});
    booleans("logical_xor/operator", [=] { return p() ^ q(); }, {0, 1, 1, 0});
    booleans("logical_not/operator", [=] { return ~p(); }, {1, 1, 0, 0});
    const auto x = [] { return some({kNan, 0, -0.0, 1e-300}, Dtype::f64); };
    booleans("logical_and/any_dtype", [=] { return logical_and(x(), whole({1, 2, 3, 4})); }, {1, 0, 0, 1});
    booleans("logical_or/any_dtype", [=] { return logical_or(x(), whole({0, 2, 0, 0})); }, {1, 1, 0, 1});
    booleans("logical_xor/any_dtype", [=] { return logical_xor(x(), whole({256, 256, 0, 0})); }, {0, 1, 0, 1});
    booleans("logical_not/any_dtype", [=] { return logical_not(x()); }, {0, 1, 1, 0});
}

void add_masks(std::vector<ValueCase>& all) {
    const auto mask = [] { return whole({1, 0}, Dtype::boolean); };
    const auto two = [&](const char* name, std::function<Tensor()> run, Dtype dtype, double first, double second) {
        all.push_back({name, std::move(run), dtype, {2}, {first, second}});
    };
    two(
        "masked_fill/cut_off",
        [=] {
            return masked_fill(whole({1, 2}), mask(), 1.5);
        },
        Dtype::i64, 1, 2);
    two(
        "masked_fill/truth",
        [=] {
            return masked_fill(whole({0, 0}, Dtype::boolean), mask(), 0.5);
        },
        Dtype::boolean, 1, 0);
    two(
        "masked_fill/f16",
        [=] {
            return masked_fill(some({1, 2}, Dtype::f16), mask(), -kInf);
        },
        Dtype::f16, -kInf, 2);
    two(
        "masked_fill/last_digit",
        [=] {
            return masked_fill(whole({1, 2}), mask(), kLarge + 1) - whole({kLarge, 0});
        },
        Dtype::i64, 1, 2);
    two(
        "where/f16_stays",
        [=] {
            return where(mask(), some({1, 2}, Dtype::f16), 2.5);
        },
        Dtype::f16, 1, 2.5);
    two(
        "where/fraction_widens_whole_numbers",
        [=] {
            return where(mask(), whole({1, 2}), 2.5);
        },
        Dtype::f32, 1, 2.5);
    two(
        "where/whole_stays_whole",
        [=] {
            return where(mask(), 7, whole({1, 2}, Dtype::i32));
        },
        Dtype::i32, 7, 2);
    two(
        "where/booleans_become_i64",
        [=] {
            return where(mask(), whole({1, 1}, Dtype::boolean), 2);
        },
        Dtype::i64, 1, 2);
    all.push_back(
        {"where/all_three_broadcast",
         [] {
             return where(whole({1, 0}, {2, 1, 1}, Dtype::boolean), whole({1, 2}, {1, 2, 1}), whole({5, 6, 7}));
         },
         Dtype::i64,
         {2, 2, 3},
         {1, 1, 1, 2, 2, 2, 5, 6, 7, 5, 6, 7}});
    all.push_back({"tril/booleans",
                   [] {
                       return tril(ones({2, 3}, Dtype::boolean, case_device()));
                   },
                   Dtype::boolean,
                   {2, 3},
                   {1, 0, 0, 1, 1, 0}});
    all.push_back({"triu/whole",
                   [] {
                       return triu(whole({1, 2, 3, 4, 5, 6}, {3, 2}), -1);
                   },
                   Dtype::i64,
                   {3, 2},
                   {1, 2, 3, 4, 0, 6}});
    all.push_back({"triu/nan_is_cut_off_too",
                   [] {
                       return triu(full({2, 2}, kNan, Dtype::f32, case_device()), 2);
                   },
                   Dtype::f32,
                   {2, 2},
                   {0, 0, 0, 0}});
}

void add_places(std::vector<ValueCase>& all) {
    const auto six = [] { return whole({0, 1, 2, 3, 4, 5}, {2, 3}); };
    all.push_back({"roll/flat", [=] { return roll(six(), {1}); }, Dtype::i64, {2, 3}, {5, 0, 1, 2, 3, 4}});
    all.push_back({"roll/rows", [=] { return roll(six(), {1}, {0}); }, Dtype::i64, {2, 3}, {3, 4, 5, 0, 1, 2}});
    all.push_back({"roll/both", [=] { return roll(six(), {-1, 4}, {0, 1}); }, Dtype::i64, {2, 3}, {5, 3, 4, 2, 0, 1}});
    all.push_back({"roll/one_twice",
                   [=] {
                       return roll(six(), {1, 1}, {1, 1});
                   },
                   Dtype::i64,
                   {2, 3},
                   {1, 2, 0, 4, 5, 3}});
    all.push_back({"one_hot/given",
                   [] {
                       return one_hot(whole({0, 2, 1}), 4);
                   },
                   Dtype::i64,
                   {3, 4},
                   {1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0}});
    all.push_back({"one_hot/counted",
                   [] {
                       return one_hot(whole({0, 2}, {2, 1}));
                   },
                   Dtype::i64,
                   {2, 1, 3},
                   {1, 0, 0, 0, 0, 1}});
    all.push_back({"embedding/index_select",
                   [=] {
                       return index_select(six(), 1, whole({2, 0}, Dtype::i32));
                   },
                   Dtype::i64,
                   {2, 2},
                   {2, 0, 5, 3}});
    all.push_back({"embedding/index_select_one",
                   [=] { return index_select(six(), 0, whole({1}, Shape{})); },
                   Dtype::i64,
                   {1, 3},
                   {3, 4, 5}});
}

void add_reductions(std::vector<ValueCase>& all) {
    const auto i32 = [] { return whole({1, 2, 3, 4, 5, 2147483647}, {2, 3}, Dtype::i32); };
    const auto truth = [] { return whole({1, 0, 1, 1, 1, 1}, {2, 3}, Dtype::boolean); };
    all.push_back({"sum/i32", [=] { return sum(i32()); }, Dtype::i64, {}, {2147483662.0}});
    all.push_back({"sum/i32_rows", [=] { return sum(i32(), {1}); }, Dtype::i64, {2}, {6, 2147483656.0}});
    all.push_back({"sum/i32_columns", [=] { return sum(i32(), {0}, true); }, Dtype::i64, {1, 3}, {5, 7, 2147483650.0}});
    all.push_back({"sum/bool", [=] { return sum(truth()); }, Dtype::i64, {}, {5}});
    all.push_back({"sum/bool_columns", [=] { return sum(truth(), {-2}); }, Dtype::i64, {3}, {2, 1, 2}});
    all.push_back({"sum/u8", [] { return sum(whole({200, 100}, Dtype::u8)); }, Dtype::i64, {}, {300}});
    all.push_back({"sum/i32_scalar", [] { return sum(whole({7}, Shape{}, Dtype::i32)); }, Dtype::i64, {}, {7}});
    all.push_back({"sum/nothing", [] { return sum(whole({}, {0, 2}, Dtype::i32), {0}); }, Dtype::i64, {2}, {0, 0}});
    // To the last digit, and round the end of the range.
    all.push_back({"sum/large", [] { return sum(whole({kLarge, 1, 1, -kLarge})); }, Dtype::i64, {}, {2}});
    all.push_back({"sum/round_the_end",
                   [] {
                       using Limits = std::numeric_limits<std::int64_t>;
                       return sum(whole({Limits::max(), 1, 5})) - whole({Limits::min()}, Shape{});
                   },
                   Dtype::i64,
                   {},
                   {5}});
    all.push_back(
        {"sum/long", [] { return sum(ones({100003}, Dtype::boolean, case_device())); }, Dtype::i64, {}, {100003}});
    all.push_back({"sum/all_but_the_middle",
                   [] {
                       return sum(reshape(arange(24, Dtype::i32, case_device()), {2, 3, 4}), {0, 2});
                   },
                   Dtype::i64,
                   {3},
                   {60, 92, 124}});

    const auto places = [&](const char* name, std::function<Tensor()> run, const std::vector<double>& values) {
        all.push_back({name, std::move(run), Dtype::i64, {std::int64_t(values.size())}, values});
    };
    const auto close = [] { return whole({kLarge, kLarge + 1, 5, -kLarge - 1, -kLarge, 5}, {2, 3}); };
    places("argmax/last_digit", [=] { return argmax(close()); }, {1, 2});
    places("argmin/last_digit", [=] { return argmin(close()); }, {2, 0});
    places("argmax/columns", [=] { return argmax(close(), 0); }, {0, 0, 0});
    places("argmin/columns", [=] { return argmin(close(), 0); }, {1, 1, 0});
    places("argmin/ends_of_the_range",
           [] {
               using Limits = std::numeric_limits<std::int64_t>;
               return argmin(
                   whole({0, Limits::min(), Limits::max(), Limits::max(), Limits::min(), Limits::min()}, {2, 3}));
           },
           {1, 1});
    const auto nan = [] { return some({1, kNan, -2, kNan}); };
    all.push_back({"argmax/nan", [=] { return argmax(nan(), 0); }, Dtype::i64, {}, {1}});
    all.push_back({"argmin/nan", [=] { return argmin(nan(), 0); }, Dtype::i64, {}, {1}});
    all.push_back({"max/nan", [=] { return max(nan()); }, Dtype::f32, {}, {kNan}});
    all.push_back({"min/nan", [=] { return min(nan(), 0).values; }, Dtype::f32, {}, {kNan}});
    all.push_back({"argmin/equals", [] { return argmin(some({3, -0.0, 0, 3}), 0); }, Dtype::i64, {}, {1}});
    all.push_back({"max/whole",
                   [=] {
                       return max(close(), 1).values - whole({kLarge, kLarge});
                   },
                   Dtype::i64,
                   {2},
                   {1, 5 - double(kLarge)}});
    all.push_back({"min/bool", [=] { return min(truth(), 1).values; }, Dtype::boolean, {2}, {0, 1}});
    all.push_back({"max/bool", [=] { return max(truth()); }, Dtype::boolean, {}, {1}});
    all.push_back({"min/f16", [] { return min(some({2, -1, 0.5}, Dtype::f16)); }, Dtype::f16, {}, {-1}});
    all.push_back({"argmax/long",
                   [] {
                       const Tensor x = arange(70001, Dtype::i64, case_device());
                       return argmax(where(x == 40000, std::int64_t(1) << 60, x), 0);
                   },
                   Dtype::i64,
                   {},
                   {40000}});

    all.push_back({"any/rows", [=] { return any(truth(), {1}); }, Dtype::boolean, {2}, {1, 1}});
    all.push_back({"all/rows", [=] { return ops::all(truth(), {1}); }, Dtype::boolean, {2}, {0, 1}});
    all.push_back(
        {"all/columns_kept", [=] { return ops::all(truth(), {0}, true); }, Dtype::boolean, {1, 3}, {1, 0, 1}});
    all.push_back({"any/all", [] { return any(some({0, -0.0, 0})); }, Dtype::boolean, {}, {0}});
    all.push_back({"any/nan", [] { return any(some({0, kNan})); }, Dtype::boolean, {}, {1}});
    all.push_back({"all/nan", [] { return ops::all(some({1, kNan})); }, Dtype::boolean, {}, {1}});
    all.push_back({"all/small", [] { return ops::all(some({1e-300, 1}, Dtype::f64)); }, Dtype::boolean, {}, {1}});
    all.push_back({"any/u8", [] { return any(whole({0, 256 - 1}, Dtype::u8)); }, Dtype::u8, {}, {1}});
    all.push_back({"any/nothing", [] { return any(some({})); }, Dtype::boolean, {}, {0}});
    all.push_back({"all/nothing",
                   [] {
                       return ops::all(zeros({0, 2}, Dtype::f32, case_device()), {0});
                   },
                   Dtype::boolean,
                   {2},
                   {1, 1}});
    all.push_back({"any/scalar", [] { return any(whole({3}, Shape{})); }, Dtype::boolean, {}, {1}});
}

void add_orders(std::vector<ValueCase>& all) {
    const auto given = [&](const char* name, std::function<Tensor()> run, Dtype dtype,
                           const std::vector<double>& values) {
        all.push_back({name, std::move(run), dtype, {std::int64_t(values.size())}, values});
    };
    given("cumsum/bool", [] { return cumsum(whole({1, 0, 1, 1}, Dtype::boolean), 0); }, Dtype::i64, {1, 1, 2, 3});
    given("cumsum/i32",
          [] {
              return cumsum(whole({2147483647, 1, -3}, Dtype::i32), 0);
          },
          Dtype::i64, {2147483647.0, 2147483648.0, 2147483645.0});
    given("cumsum/last_digit",
          [] {
              return cumsum(whole({kLarge, 1, 1 - kLarge}), 0) - whole({kLarge, kLarge, 0});
          },
          Dtype::i64, {0, 1, 2});
    given("cumsum/from_nan_on", [] { return cumsum(some({1, kNan, 2}), 0); }, Dtype::f32, {1, kNan, kNan});
    given("cumsum/infinities",
          [] {
              return cumsum(some({1, kInf, 2, -kInf, 1}), 0);
          },
          Dtype::f32, {1, kInf, kInf, kNan, kNan});
    given("cumsum/f16_is_rounded_once",
          [] {
              return cumsum(some({2048, 1, 1, 1}, Dtype::f16), 0);
          },
          Dtype::f16, {2048, 2048, 2050, 2052});
    all.push_back({"cumsum/columns",
                   [] {
                       return cumsum(reshape(arange(6, Dtype::i64, case_device()), {3, 2}), 0);
                   },
                   Dtype::i64,
                   {3, 2},
                   {0, 1, 2, 4, 6, 9}});
    all.push_back({"cumsum/scalar", [] { return cumsum(whole({3}, Shape{}, Dtype::f32), 0); }, Dtype::f32, {}, {3}});
    all.push_back({"cumsum/nothing", [] { return cumsum(some({}), 0); }, Dtype::f32, {0}, {}});
    given("cumsum/long",
          [] {
              const Tensor sums = cumsum(ones({70001}, Dtype::i32, case_device()), 0);
              return cat({slice(sums, 0, 255, 258), slice(sums, 0, 70000, 70001)});
          },
          Dtype::i64, {256, 257, 258, 70001});

    const auto mixed = [] { return some({1, kNan, 2, kNan, -0.0, 0, -kInf, kInf}); };
    given("argsort/nan_is_the_largest", [=] { return argsort(mixed()); }, Dtype::i64, {6, 4, 5, 0, 2, 7, 1, 3});
    given("argsort/descending", [=] { return argsort(mixed(), 0, true); }, Dtype::i64, {1, 3, 7, 2, 0, 4, 5, 6});
    given("argsort/f64", [=] { return argsort(cast(mixed(), Dtype::f64)); }, Dtype::i64, {6, 4, 5, 0, 2, 7, 1, 3});
    given("argsort/f16", [=] { return argsort(cast(mixed(), Dtype::f16), -1, true); }, Dtype::i64,
          {1, 3, 7, 2, 0, 4, 5, 6});
    given("sort/values", [=] { return sort(mixed()).values; }, Dtype::f32, {-kInf, 0, 0, 1, 2, kInf, kNan, kNan});
    given("topk/largest", [=] { return topk(mixed(), 3).values; }, Dtype::f32, {kNan, kNan, kInf});
    given("topk/smallest", [=] { return topk(mixed(), 4, 0, false).indices; }, Dtype::i64, {6, 4, 5, 0});
    given("topk/none", [=] { return topk(mixed(), 0).indices; }, Dtype::i64, {});
    given("argsort/last_digit",
          [] {
              return argsort(whole({kLarge + 1, kLarge, -kLarge - 1, -kLarge, kLarge + 1}));
          },
          Dtype::i64, {2, 3, 1, 0, 4});
    given("argsort/ends_of_the_range",
          [] {
              using Limits = std::numeric_limits<std::int64_t>;
              return argsort(whole({0, Limits::max(), Limits::min(), -1}));
          },
          Dtype::i64, {2, 3, 0, 1});
    given("argsort/bool",
          [] {
              return argsort(whole({1, 0, 1, 0}, Dtype::boolean), 0, true);
          },
          Dtype::i64, {0, 2, 1, 3});
    const auto rows = [](Dtype dtype) { return whole({3, 1, 2, 1, 2, 2, 9, 9, 0, 7, 8, 9}, {2, 2, 3}, dtype); };
    for (const Dtype dtype : {Dtype::i64, Dtype::i32, Dtype::u8, Dtype::f32, Dtype::bf16, Dtype::f64}) {
        const std::string name(name_of(dtype));
        all.push_back({"sort/rows_" + name,
                       [=] { return sort(rows(dtype)).indices; },
                       Dtype::i64,
                       {2, 2, 3},
                       {1, 2, 0, 0, 1, 2, 2, 0, 1, 0, 1, 2}});
        all.push_back({"sort/middle_" + name,
                       [=] { return sort(rows(dtype), 1, true).values; },
                       dtype,
                       {2, 2, 3},
                       {3, 2, 2, 1, 1, 2, 9, 9, 9, 7, 8, 0}});
        all.push_back({"topk/first_" + name,
                       [=] { return topk(rows(dtype), 1, 0).indices; },
                       Dtype::i64,
                       {1, 2, 3},
                       {1, 1, 0, 1, 1, 1}});
    }
    all.push_back({"sort/scalar", [] { return sort(whole({3}, Shape{}, Dtype::f32)).values; }, Dtype::f32, {}, {3}});
    all.push_back({"sort/nothing",
                   [] {
                       return sort(zeros({2, 0}, Dtype::f32, case_device())).values;
                   },
                   Dtype::f32,
                   {2, 0},
                   {}});
    // Rows that are longer than a block: rolled and sorted again they are what they were.
    for (const Dtype dtype : {Dtype::i64, Dtype::f32})
        all.push_back({"sort/long_" + std::string(name_of(dtype)),
                       [=] {
                           const Tensor x = reshape(arange(3 * 5000, dtype, case_device()), {3, 5000});
                           return ops::all(sort(roll(x, {1234}, {1})).values == x);
                       },
                       Dtype::boolean,
                       {},
                       {1}});
}

bool same(double a, double b) {
    return a == b || (a != a && b != b);
}

}  // namespace

const std::vector<ValueCase>& value_cases() {
    static const std::vector<ValueCase> cases = [] {
        std::vector<ValueCase> all;
        add_comparisons(all);
        add_logic(all);
        add_masks(all);
        add_places(all);
        add_reductions(all);
        add_orders(all);
        add_exact_answers(all);
        return all;
    }();
    return cases;
}

std::string mismatch(const ValueCase& value_case) {
    const Tensor y = value_case.run();
    if (y.device() != case_device()) return fmt::format("{}: on {}", value_case.name, y.device().str());
    if (y.dtype() != value_case.dtype || y.shape() != value_case.shape)
        return fmt::format("{}: {} and not {}{}", value_case.name, y.str(), name_of(value_case.dtype),
                           value_case.shape.str());
    const std::vector<double> got = y.to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i)
        if (!same(got[i], value_case.values.at(i)))
            return fmt::format("{}: {} and not {} at {}", value_case.name, got[i], value_case.values[i], i);
    return "";
}

}  // namespace invar::testing
