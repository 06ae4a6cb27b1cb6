// 16-bit copies that devices hand round beside the next forward, in steps that run and in steps that are recorded.
#include "invar/amp/autocast.h"
#include "invar/core/arrivals.h"
#include "invar/core/host_side.h"
#include "invar/nn/layers.h"
#include "tests/dist/deferred_collectives.h"
#include "tests/dist/thread_ranks.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

struct Deep : Module {
    Deep() {
        default_generator().set_state({7, 0});
        for (int i = 0; i < 4; ++i) layers.push_back(&add<Linear>(std::to_string(i), 16, 16));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = x;
        for (Linear* layer : layers) y = ops::relu((*layer)(y));
        return y;
    }
    std::vector<Linear*> layers;
};

// A model of one of two ranks under zero1, a bucket for each of its layers.
struct Trained {
    explicit Trained(Communicator& ranks)
        : ranks(ranks),
          scope(ranks),
          optimizer(model, sgd_spec(0.05),
                    StoreOptions::for_precision(
                        precision, {.ranks = &ranks, .strategy = Strategy::zero1, .bucket_bytes = 16 * 16 * 4})) {}
    Tensor forward() {
        const Autocast cast(precision);
        return model(ops::full({2, 16}, 0.5 + 0.25 * ranks.rank()));
    }
    void step() {
        optimizer.zero_grad();
        {
            const GradientExchange::Backward exchanged(optimizer.exchange(), true);
            backward(ops::sum(forward()));
        }
        optimizer.step();
    }
    // As a recording and each of its replays are to the device: it sends, computes, and has nothing under way at the
    // end.
    void recorded_step(HostSide& host) {
        Arrivals::await_all_sent();
        const HostSide::Scope recording(host);
        Arrivals::begin_recordings();
        sent_at_first = static_cast<DeferredRanks&>(ranks).left();
        step();
        Arrivals::await_all_sent();
    }
    // The other rank's pieces as nobody has sent them.
    void spoil_shadows() {
        const ParameterStore& store = optimizer.store();
        for (const Bucket& bucket : store.buckets()) {
            const std::int64_t other = bucket.begin + (1 - ranks.rank()) * bucket.piece;
            kernels_for({}).fill(store.shadow().window(other, {bucket.piece}).view(), 9.0);
        }
    }
    std::vector<float> weights() {
        std::vector<float> all;
        for (Parameter* p : model.parameters())
            for (const float value : p->whole().to_vector<float>()) all.push_back(value);
        return all;
    }

    Communicator& ranks;
    WorldScope scope;
    Communicator::Ticket sent_at_first = 0;  // by a recording, before the step
    Precision precision = Precision::parse("bf16-mixed");
    Deep model;
    Optimizer optimizer;
};

struct Outcome {
    std::vector<float> weights, results;
};

Outcome after(Trained& trained) {
    return {trained.weights(), trained.forward().to_vector<float>()};
}

// So many steps by way of the hosts.
std::vector<Outcome> expected(int steps) {
    std::vector<Outcome> all(2);
    as_ranks(2, [&](Communicator& ranks) {
        Trained trained(ranks);
        for (int i = 0; i < steps; ++i) trained.step();
        all[std::size_t(ranks.rank())] = after(trained);
    });
    return all;
}

void expect_same(Trained& trained, const std::vector<Outcome>& expected) {
    const Outcome found = after(trained), &wanted = expected[std::size_t(trained.ranks.rank())];
    EXPECT_EQ(found.weights, wanted.weights);
    EXPECT_EQ(found.results, wanted.results);
}

void as_devices(const std::function<void(DeferredRanks& ranks)>& work) {
    as_ranks(2, [&](Communicator& ranks) {
        DeferredRanks deferred(ranks);
        work(deferred);
    });
}

TEST(ShadowsOnTheirWay, TravelUntilForwardReadsThem) {
    const std::vector<Outcome> by_hosts = expected(3);
    as_devices([&](DeferredRanks& ranks) {
        Trained trained(ranks);
        ASSERT_TRUE(trained.optimizer.store().shares_masters());
        ASSERT_GE(trained.optimizer.store().buckets().size(), 4u);
        for (int i = 0; i < 3; ++i) {
            trained.step();
            EXPECT_GE(ranks.left(), 4u) << "the step waited for them";
        }
        expect_same(trained, by_hosts);
        EXPECT_EQ(ranks.left(), 0u);
    });
}

TEST(ShadowsOnTheirWay, AreLeftByARecordingAndSentByTheNextReplay) {
    const std::vector<Outcome> by_hosts = expected(5);
    as_devices([&](DeferredRanks& ranks) {
        Trained trained(ranks);
        trained.step();
        for (int i = 0; i < 3; ++i) {
            HostSide host;
            trained.recorded_step(host);
            EXPECT_GE(trained.sent_at_first, 4u);
            EXPECT_EQ(ranks.left(), 0u) << "a recording cannot end with something under way";
        }
        trained.step();  // one that could not be replayed
        expect_same(trained, by_hosts);
    });
}

// A replay runs nothing of the step on the host, which has to know all the same what was left.
TEST(ShadowsOnTheirWay, AreSentByWhoReadsThemAfterAReplay) {
    const std::vector<Outcome> by_hosts = expected(2);
    for (const bool asked : {false, true})
        as_devices([&](DeferredRanks& ranks) {
            Trained trained(ranks);
            trained.step();
            HostSide host;
            trained.recorded_step(host);
            trained.optimizer.store().gather_shadows();
            EXPECT_EQ(ranks.left(), 0u);
            host.replay();
            trained.spoil_shadows();
            if (asked) trained.optimizer.store().gather_shadows();
            expect_same(trained, by_hosts);
        });
}

TEST(ShadowsOnTheirWay, AreWhereTheyWereAfterARecordingThatFailed) {
    const std::vector<Outcome> by_hosts = expected(2);
    for (const bool after_another : {false, true})
        as_devices([&](DeferredRanks& ranks) {
            Trained trained(ranks);
            trained.step();
            if (after_another) {
                HostSide host;
                trained.recorded_step(host);
            }
            Arrivals::await_all_sent();
            HostSide host;
            {
                const HostSide::Scope recording(host);
                Arrivals::begin_recordings();
                trained.forward();
            }
            host.roll_back();
            if (after_another) trained.spoil_shadows();  // what was recorded was never done
            if (!after_another) trained.step();
            expect_same(trained, by_hosts);
        });
}

// Weights that somebody sets between two replays are what the next one sends.
TEST(ShadowsOnTheirWay, TakeWeightsThatWereSetInBetween) {
    const auto set_and_step = [](Trained& trained, const std::function<void()>& step) {
        trained.step();
        step();
        for (Parameter* p : trained.model.parameters())
            p->from_file(ops::full(file_shape_of(p->value, p->layout), 0.125));
        step();
    };
    std::vector<Outcome> by_hosts(2);
    as_ranks(2, [&](Communicator& ranks) {
        Trained trained(ranks);
        set_and_step(trained, [&] { trained.step(); });
        by_hosts[std::size_t(ranks.rank())] = after(trained);
    });
    as_devices([&](DeferredRanks& ranks) {
        Trained trained(ranks);
        set_and_step(trained, [&] {
            HostSide host;
            trained.recorded_step(host);
        });
        expect_same(trained, by_hosts);
    });
}

}  // namespace
}  // namespace invar
