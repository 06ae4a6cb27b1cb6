// An optimizer that is spread over ranks: what each finds, what all agree on, and how much of the gradients is there at
// once.
#include "tests/dist/deferred_collectives.h"
#include "tests/dist/thread_ranks.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

// Two ranks, by way of their hosts and as devices do it by themselves.
void as_two_ranks(const std::function<void(Communicator& ranks)>& work) {
    as_ranks(2, work);
    as_ranks(2, [&](Communicator& ranks) {
        DeferredRanks deferred(ranks);
        work(deferred);
    });
}

// Sends gradients backward that are {1, 1, 1} and these.
void send_back(Weights& model, const std::vector<float>& of_b = {1, 1}) {
    backward(ops::sum(model.a.value) + ops::sum(ops::mul(model.b.value, Tensor::from<float>(of_b, {1, 2}))));
}

TEST(RanksOptimizer, SumsTheLossAndForgetsItInAStepWithoutOne) {
    as_two_ranks([](Communicator& ranks) {
        Weights model;
        Optimizer optimizer(model, sgd_spec(0.1), {Dtype::f32, {}, Sharding{.ranks = &ranks}});
        send_back(model);
        optimizer.step_scaled(nullptr, {}, {}, Tensor::scalar(ranks.rank() + 1.0));
        ASSERT_TRUE(optimizer.agreed_loss());
        EXPECT_EQ(optimizer.agreed_loss().item(), 3.0);
        optimizer.zero_grad();
        send_back(model);
        optimizer.step();
        EXPECT_FALSE(optimizer.agreed_loss()) << ranks.name();
        EXPECT_EQ(optimizer.state().taken, 2);
    });
}

// a lies in the first rank's half of the flat gradients, b in the second's, which begins at element 32.
TEST(RanksOptimizer, TellsWhereInTheGradientsASumIsNotFiniteAndWhoseFaultItIs) {
    as_ranks(2, [](Communicator& ranks) {
        Weights model;
        Optimizer optimizer(model, sgd_spec(0.1), {Dtype::f32, {}, Sharding{.ranks = &ranks}});
        send_back(model, {1, ranks.rank() == 0 ? kNan : 1.0f});
        optimizer.step();
        const ReduceFinding finding = optimizer.exchange()->finding();
        EXPECT_EQ(finding.place, ranks.rank() == 1 ? 33 : -1);
        EXPECT_EQ(finding.rank, ranks.rank() == 1 ? 0 : -1);
        EXPECT_EQ(optimizer.state().first_nonfinite, 33);
        EXPECT_EQ(optimizer.store().parameter_at(33).name, "b");
        EXPECT_EQ(optimizer.state().bad_rank, 0);
    });
}

// As one process does, which sums them in the same order.
TEST(RanksOptimizer, TakesInGradientsThatWereSetByHand) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2})
        as_two_ranks([strategy](Communicator& ranks) {
            Weights model;
            const std::vector<float> before = model.a.value.to_vector<float>();
            Optimizer optimizer(model, sgd_spec(0.5),
                                {Dtype::f32, {}, Sharding{.ranks = &ranks, .strategy = strategy}});
            const auto given = [&](float value) { return Tensor::from<float>({value, 2 * value, 0}, {3}); };
            model.a.value.set_grad(given(ranks.rank() == 0 ? 1 : 3));
            optimizer.step();
            const std::vector<float> after = model.a.whole().to_vector<float>();
            for (std::size_t i = 0; i < 3; ++i)
                EXPECT_EQ(after[i], before[i] - 0.5f * given(4).to_vector<float>()[i]) << ranks.name();
            EXPECT_EQ(optimizer.state().taken, 1);
            optimizer.zero_grad();
            model.a.value.set_grad(given(ranks.rank() == 0 ? 1 : kNan));
            optimizer.step();
            EXPECT_EQ(model.a.whole().to_vector<float>(), after) << "one of them was not finite";
            EXPECT_EQ(optimizer.state().bad_rank, 1);
        });
}

// Each rank has half of every parameter here, and of b nothing had a gradient yet.
TEST(RanksOptimizer, CountsOnEveryRankTheStepsThatAParameterStoodStill) {
    const std::vector<Bucket> buckets = {{0, 64, 32, 0, 0, 1}, {64, 64, 32, 32, 1, 2}};
    for (const int rank : {0, 1}) {
        const std::vector<Segment> mine =
            share_of({{0, 32, 0, 0}, {32, 32, 0, 1, true}, {64, 64, 0, 2, true}}, buckets, rank);
        ASSERT_EQ(mine.size(), 3u) << "each once";
        const std::int64_t first = rank == 0 ? 32 : 0;
        EXPECT_EQ(mine[0].count, first);
        EXPECT_EQ(mine[1].count, 32 - first);
        EXPECT_EQ(mine[2].count, 32);
        EXPECT_EQ(mine[2].begin, 32);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(mine[std::size_t(i)].missed, i);
        EXPECT_TRUE(mine[1].idle);
    }
}

struct Layers : Module {
    static constexpr std::int64_t kWidth = 1 << 16;
    Layers() {
        for (const char* name : {"a", "b", "c", "d", "e", "f"})
            scales.push_back(&add_parameter(name, ops::zeros({kWidth})));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = x;
        for (const Parameter* scale : scales) y = ops::mul(y, scale->value);
        return y;
    }
    std::vector<Parameter*> scales;
};

// Ranks that take down what is sent, by its size.
class Overheard final : public Communicator {
  public:
    explicit Overheard(Communicator& ranks) : ranks_(ranks) {}
    int rank() const override { return ranks_.rank(); }
    int size() const override { return ranks_.size(); }
    std::string name() const override { return ranks_.name(); }
    void all_gather(const void* mine, void* all, std::size_t bytes) override { ranks_.all_gather(mine, all, bytes); }
    void broadcast(void* data, std::size_t bytes, int root) override { ranks_.broadcast(data, bytes, root); }
    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, ReduceFinding* finding) override {
        sent.push_back(whole.numel());
        return ranks_.reduce_scatter(whole, share, wire, finding);
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override { return ranks_.all_gather(share, whole); }
    void wait(Ticket ticket) override { ranks_.wait(ticket); }
    std::vector<std::int64_t> sent;

  private:
    Communicator& ranks_;
};

// Its parameters are not in the order in which forward comes to them.
struct Shuffled : Module {
    Shuffled() {
        for (const std::int64_t width : {64, 128, 192})
            rows.push_back(&add_parameter(std::to_string(width), ops::zeros({width})));
    }
    Tensor forward(const Tensor& x) override {
        Tensor sum = ops::sum(x);
        for (const std::size_t i : {1, 2, 0}) sum = ops::sum(ops::mul(rows[i]->value, sum));
        return sum;
    }
    std::vector<Parameter*> rows;
};

TEST(RanksOptimizer, SendsBucketsInTheOrderInWhichTheFirstRankHasThemReady) {
    for (const bool recomputes : {false, true})
        for (const Strategy strategy : {Strategy::ddp, Strategy::zero2})
            as_ranks(2, [&](Communicator& ranks) {
                Overheard overheard(ranks);
                Shuffled model;
                Sharding sharding{.ranks = &overheard, .strategy = strategy, .bucket_bytes = 4};
                sharding.recomputes = recomputes;
                Optimizer optimizer(model, sgd_spec(0.1), {Dtype::f32, {}, sharding});
                const auto sent = [&] {
                    optimizer.zero_grad();
                    overheard.sent.clear();
                    {
                        const GradientExchange::Backward exchanged(optimizer.exchange(), true);
                        backward(model(ops::full({4}, 1.0)));
                    }
                    optimizer.step();
                    return overheard.sent;
                };
                using Sizes = std::vector<std::int64_t>;
                EXPECT_EQ(sent(), (Sizes{192, 128, 64})) << "the last one first";
                if (recomputes) {
                    EXPECT_EQ(sent(), (Sizes{192, 128, 64})) << "nobody knew yet what is complete";
                }
                for (int step = 0; step < 2; ++step) EXPECT_EQ(sent(), (Sizes{64, 192, 128}));
            });
}

// Backward fills one bucket while another one travels: two of them for each rank, beside its share of the sums.
TEST(RanksOptimizer, HoldsTwoBucketsOfGradientsAtMostUnderZero2) {
    for (const int backwards : {1, 2}) {  // of a step: beyond the first, a sum comes beside the share and is added
        as_ranks(2, [&](Communicator& ranks) {
            DeferredRanks deferred(ranks);
            Layers model;
            Optimizer optimizer(model, sgd_spec(0.1),
                                {Dtype::f32, {}, {.ranks = &deferred, .strategy = Strategy::zero2, .bucket_bytes = 4}});
            ASSERT_EQ(optimizer.store().buckets().size(), 6u);
            const Tensor x = ops::zeros({Layers::kWidth});
            const auto run = [&] {
                optimizer.zero_grad();
                for (int i = 1; i <= backwards; ++i) {
                    const GradientExchange::Backward exchanged(optimizer.exchange(), i == backwards);
                    backward(ops::sum(model(x)));
                }
            };
            run();
            ranks.barrier();
            const std::int64_t before = memory_stats({}).live[static_cast<int>(Purpose::gradients)];
            if (ranks.leads()) reset_peak_memory({});
            ranks.barrier();
            run();
            ranks.barrier();
            const std::int64_t bucket = Layers::kWidth * std::int64_t(sizeof(float));
            const std::int64_t sums = backwards == 1 ? 0 : 2;  // of two buckets, of which each rank has its piece
            EXPECT_EQ((memory_stats({}).peak_of(Purpose::gradients) - before) / bucket, 2 * ranks.size() + sums);
        });
    }
}

}  // namespace
}  // namespace invar
