// ParameterStore: all parameters of a model in flat arrays, so that one pass serves them all. Keeps FP32 masters, the
// low-precision shadow that forward uses, the FP32 gradients, and the optimizer's moments. Where ranks share masters
// out, each has those of its share alone; of parameters that only operations in low precision read, their values are
// then promised, and every rank has their shadows.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "invar/amp/precision.h"
#include "invar/core/arrivals.h"
#include "invar/kernels/kernels.h"
#include "invar/nn/parameter.h"
#include "invar/optim/sharding.h"

namespace invar {

struct StoreOptions {
    Dtype weights = Dtype::f32;   // 16 bits: no masters at all, updates are rounded to the weight itself
    std::optional<Dtype> shadow;  // the low-precision copy that autocast uses instead of casting
    Sharding sharding;            // over which ranks
    std::optional<Device> device = std::nullopt;  // to keep them on; none: where they are
    static StoreOptions for_precision(const Precision& precision, const Sharding& sharding = {});
};

class ParameterStore final : private ParameterHome, private Arrivals {
  public:
    // Moves the parameters into the store: their values become windows of it, and what was frozen (requires_grad is
    // false) stays so. `group_of` has one entry a parameter, `moments` is 0, 1 or 2.
    ParameterStore(std::vector<Parameter*> parameters, const std::vector<int>& group_of, int moments,
                   StoreOptions options);
    ~ParameterStore() override;
    ParameterStore(const ParameterStore&) = delete;
    ParameterStore& operator=(const ParameterStore&) = delete;

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    const std::vector<Segment>& places() const { return places_; }  // of each parameter
    FlatStore flat() const;
    // What an update goes over: all of it, or this rank's share, in places of its own.
    FlatStore flat_to_step() const;
    Device device() const { return missed_.device(); }
    Dtype dtype() const { return weights_.dtype(); }  // of the weights
    std::int64_t elements() const { return total_; }  // of the flat arrays of all parameters
    Tensor weights() const;                           // all of them; throws where no rank has them
    // What this rank updates: all weights or its share of them, in its places.
    Tensor own_weights() const;
    // What every rank has of all weights: themselves, or where masters are shared out their shadows.
    Tensor known_weights();
    bool shares_masters() const { return promised_.defined(); }
    // From here on every rank has all masters, as when operations in FP32 begin to read them. All ranks say so
    // together.
    void keep_all_masters();
    Tensor shadow() const { return shadow_; }
    void bump_versions() const;  // of what an update has written
    // All of them; zeros where a parameter has none. Takes in what was given by set_grad(), none or FP32 of the
    // parameter's shape, and throws for others.
    Tensor gradients() const;
    // Each parameter's part of what lies like own_weights(). Where ranks share it out, all of them ask together, and a
    // bucket is gathered at a time.
    using Visit = std::function<void(std::size_t parameter, const Tensor& value)>;
    void for_each_part(const Tensor& held, const Visit& visit) const;
    // Of what ranks share out, each keeps its own part of the value.
    void set_part(const Tensor& held, std::size_t i, const Tensor& value) const;
    const Tensor& held_moment(int which) const { return moments_.at(std::size_t(which)); }
    // Parameter i's part, where this rank has all of it.
    Tensor moment(int which, std::size_t i) const;
    int moments() const { return int(moments_.size()); }

    void zero_gradients();  // from here on no parameter has a gradient, until something adds to it
    // --- where ranks train together ---
    const Sharding& sharding() const { return sharding_; }
    const std::vector<Bucket>& buckets() const { return buckets_; }
    // What of parameter i this rank answers for, whether others have it too or not: `count` elements, the first of them
    // its element `from`, which lies at `at` of what lies like own_weights().
    struct OwnPart {
        std::int64_t from, at, count;
    };
    OwnPart own_part(std::size_t i) const;
    // This rank's share of the gradients, once they are summed.
    Tensor gradient_share() const { return gradient_share_; }
    // A bucket's gradients, all of them, with zeros where a parameter has none.
    Tensor bucket_gradients(std::size_t bucket) const;
    // zero2: makes room for a bucket's gradients, which its parameters then have nowhere else, and lets it go.
    void open_bucket(std::size_t bucket);
    void close_bucket(std::size_t bucket);
    bool is_open(std::size_t bucket) const;
    // After own_weights() were written: everybody gets everybody's, as far as all need them. Shadows may be on their
    // way still; who reads one waits for it. A recording leaves them to be sent when it begins again, or by whoever
    // reads one first: all ranks then have to.
    void publish_weights();
    // All shadows are here; all ranks come together. Before one of them reads a shadow by itself.
    void gather_shadows();
    // The parameter that a leaf is, or as many as there are.
    std::size_t index_of(const Tensor& leaf) const;

    // Which parameters have one. A replayed step gives them again where the recorded one did.
    std::vector<bool> have_gradients() const;
    void set_have_gradients(const std::vector<bool>& have);

    // What the coming step goes over: parameters of a group that lie side by side, in one piece as long as all of them
    // have a gradient at every step. One without it stands still, weight and moments, and so does its count of steps.
    const std::vector<Segment>& segments_to_step();
    // How many steps each parameter was without a gradient. Read and written like moments: late, not in the step.
    std::vector<std::int64_t> missed_steps() const;
    void set_missed_steps(const std::vector<std::int64_t>& missed);
    // Counts changes of who ever missed a step, by which the pieces are cut.
    int cuts() const { return cuts_; }

    // Changes the precision of the shadow (or drops it) in the middle of training; masters and moments stay as they
    // are.
    void set_shadow(std::optional<Dtype> dtype);
    void refresh_shadow();
    // Whose gradient lies at this place of the flat array.
    const Parameter& parameter_at(std::int64_t place) const;

  private:
    void adopt_gradients() const;
    void adopt_gradient(std::size_t i, const Tensor& own) const;  // into its place
    void check_current() const;  // throws where another store has taken the parameters over
    void lay_out(std::vector<int> group_of);
    void take_weight_share() const;
    void move_in(std::size_t parameter, const Tensor& value);
    void set_value(std::size_t parameter, Tensor value);
    void share_masters_out();
    void hold_all_masters();
    bool may_share_masters(Dtype weights, std::optional<Dtype> shadow) const;
    static Tensor promised_weights(std::int64_t count, Device device);
    void send_shadow(std::size_t bucket);
    void send_shadows();
    void expect_shadows(bool unsent);
    bool shadows_are_here() const { return arrived_ == buckets_.size(); }
    std::int64_t own_begin(const Bucket& bucket) const;
    Tensor gather(const Parameter& parameter) override;
    void take(const Parameter& parameter, const Tensor& value) override;
    void await(const Tensor& shadow) override;
    void await_sent() override;
    void begin_recording() override;
    const Bucket& bucket_of(std::size_t parameter) const;
    Sharding sharding_;
    std::vector<Bucket> buckets_;
    std::int64_t total_ = 0, share_ = 0;  // elements of the flat arrays, and of this rank's share
    std::int64_t low_from_ = 0;           // behind this place lies what operations in low precision alone read
    bool keeps_all_ = false;              // masters are not to be shared out
    std::vector<bool> had_gradients_;     // zero2: before their bucket was let go
    Tensor gradient_share_, weight_share_;
    mutable std::optional<std::uint64_t> shared_at_;  // the version of the weights that weight_share_ is a part of
    Tensor promised_;                                 // all weights, where masters are shared out
    std::vector<Communicator::Ticket> on_their_way_;  // shadows of buckets, in order; 0: they are not sent
    std::size_t arrived_ = 0;                         // buckets whose shadows are here
    bool unsent_ = false;                             // a recording has left its shadows
    std::size_t gathered_bucket_ = 0;                 // the last one that somebody asked for a value of
    Tensor gathered_;
    std::vector<Tensor> open_;  // zero2: buckets
    std::vector<Segment> share_segments_;
    std::vector<Parameter*> parameters_;
    std::vector<std::shared_ptr<Parameter>> owned_;  // the same: their model may be gone before the store
    std::vector<Segment> places_;
    std::vector<Segment> segments_;  // as last cut
    std::vector<bool> ever_missed_, cut_for_;
    int cuts_ = 0;
    Tensor missed_;
    Tensor weights_, shadow_, gradients_;
    std::vector<Tensor> moments_;
};

}  // namespace invar
