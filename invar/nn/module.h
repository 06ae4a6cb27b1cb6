// Module: a tree of layers with named parameters, buffers and children. Calling one enters its name (for diagnosis),
// its own precision where it has one, and recomputation of activations where it is asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "invar/amp/precision.h"
#include "invar/nn/parameter.h"

namespace invar {

using StateDict = std::map<std::string, Tensor>;

// none keeps what backward needs; light makes norms, activations and casts anew, which costs a little time;
// block keeps a module's inputs alone and runs it a second time.
enum class Recompute { none, light, block };

class Module {
  public:
    virtual ~Module() = default;
    Module() = default;
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    // A module overrides one of these: that of one tensor, or that of several with any number of results.
    virtual Tensor forward(const Tensor& x);
    virtual Tensors forward(const Tensors& inputs);
    Tensor operator()(const Tensor& x);
    Tensors operator()(const Tensors& inputs);
    template <class... More>
    Tensors operator()(const Tensor& first, const Tensor& second, const More&... more) {
        return (*this)(Tensors{first, second, more...});
    }

    void train(bool on = true);
    void eval() { train(false); }
    bool training() const { return training_; }

    // Depth first, in the order of registration, names filled in ("layers.0.weight").
    std::vector<Parameter*> parameters();
    std::int64_t parameter_count();
    // In the same order, with their names ("bn1.running_mean").
    std::vector<std::pair<std::string, Tensor*>> buffers();
    // Every module below and including this one, with its path; this one's is "".
    std::vector<std::pair<std::string, Module*>> modules();

    // The module at a path such as "layers.0.attn"; throws a UsageError that names the nearest.
    Module& get_submodule(const std::string& path);
    // Takes the parameters that a pattern matches, by their own names or by a module around them ("features.*",
    // "*.bias"), out of training, or back into it; returns how many. Throws a UsageError where there is none.
    int freeze(const std::string& pattern, bool frozen = true);

    // Moves parameters and buffers; before an optimizer is made, which keeps them in memory of its own.
    void to(Device device);
    void buffers_to(Device device);  // where an optimizer moves the parameters

    // A copy with weights and buffers of its own, and the same training mode, frozen weights, precisions and
    // checkpointing; without gradients and shadows. The random numbers of the program go on as if nothing had been
    // made. Throws a UsageError that names the class where a module does not say how another one is made.
    std::unique_ptr<Module> clone();
    // A module as the constructor made this one, for clone(): `return std::make_unique<Net>(options_);`. Models that
    // are made by a registered name need not say it: who makes them leaves a maker with them.
    virtual std::unique_ptr<Module> new_instance() const;
    void set_maker(std::function<std::unique_ptr<Module>()> maker) { maker_ = std::move(maker); }

    // PyTorch's names and layouts, on the host. Strict loading names what is missing, unexpected or misshapen.
    StateDict state_dict();
    // What state_dict() holds, without a copy of it.
    struct StateEntry {
        Shape shape;
        Dtype dtype;
    };
    std::map<std::string, StateEntry> state_entries();
    void load_state_dict(const StateDict& state, bool strict = true);

    // For weights of somebody else's: what this model calls the tensor that a file calls `in_file`, which is the same
    // name unless a model knows better, and "" for one that it has no use for. Two names may mean one tensor, which
    // must then be the same in both.
    virtual std::string own_name(const std::string& in_file) const { return in_file; }

    // The precision this module and everything below it runs in, whatever surrounds it.
    void set_precision(std::optional<Precision> precision) { precision_ = precision; }
    const std::optional<Precision>& precision() const { return precision_; }
    // What of this module's activations is made anew in backward instead of being kept.
    void set_recompute(Recompute level) { recompute_ = level; }
    // Children that Recompute::block may wrap one by one; a model with blocks overrides this.
    virtual std::vector<Module*> checkpoint_blocks();

  protected:
    // Children, parameters and buffers are registered in the constructor and live as long as the module.
    template <class M, class... Args>
    M& add(const std::string& name, Args&&... args) {
        auto child = std::make_unique<M>(std::forward<Args>(args)...);
        M& reference = *child;
        adopt(name, std::move(child));
        return reference;
    }
    Module& adopt(const std::string& name, std::unique_ptr<Module> child);
    Parameter& add_parameter(const std::string& name, Tensor value, FileLayout layout = {});
    Tensor& add_buffer(const std::string& name, Tensor value);

  private:
    struct Child {
        std::string name;
        std::unique_ptr<Module> module;
    };
    void check_free(const std::string& name) const;
    void visit(const std::string& path, const std::function<void(const std::string&, Module&)>& f);
    // Its name below the module that calls it: "layers.0" where a list between them is not called itself.
    std::string name_from_caller() const;

    std::string name_;
    const Module* parent_ = nullptr;
    bool training_ = true;
    Recompute recompute_ = Recompute::none;
    std::optional<Precision> precision_;
    std::function<std::unique_ptr<Module>()> maker_;
    std::vector<Child> children_;
    std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters_;
    std::vector<std::pair<std::string, std::unique_ptr<Tensor>>> buffers_;
};

// Modules that somebody else calls, named "0", "1", ...
class ModuleList : public Module {
  public:
    template <class M>
    M& append(std::unique_ptr<M> module) {
        M* const appended = module.get();
        modules_.push_back(&adopt(std::to_string(modules_.size()), std::move(module)));
        return *appended;
    }
    std::size_t size() const { return modules_.size(); }
    Module& operator[](std::size_t i) { return *modules_.at(i); }
    auto begin() const { return modules_.begin(); }
    auto end() const { return modules_.end(); }
    std::vector<Module*> checkpoint_blocks() override { return modules_; }
    std::unique_ptr<Module> new_instance() const override;

  private:
    std::vector<Module*> modules_;
};

// Modules one after the other, named "0", "1", ...
class Sequential : public Module {
  public:
    Sequential() = default;
    template <class... M>
    explicit Sequential(std::unique_ptr<M>... modules) {
        (then(std::move(modules)), ...);
    }
    explicit Sequential(std::vector<std::unique_ptr<Module>> modules) {
        for (std::unique_ptr<Module>& module : modules) then(std::move(module));
    }
    template <class M>
    Sequential& then(std::unique_ptr<M> module) {
        blocks_.push_back(&adopt(std::to_string(blocks_.size()), std::move(module)));
        return *this;
    }
    Tensor forward(const Tensor& x) override;
    std::vector<Module*> checkpoint_blocks() override { return blocks_; }
    std::unique_ptr<Module> new_instance() const override;

  private:
    std::vector<Module*> blocks_;
};

// Whether a pattern ("features.*", "*.bias") is of this parameter or buffer, or of a module around it.
bool matches_parameter(const std::string& pattern, const std::string& parameter);

// Gives every module whose path matches a pattern ("fc2", "conv*", "layers.*.attn") its own precision; a later match
// wins. Throws a UsageError for a pattern that matches nothing.
void override_precision(Module& model, std::span<const std::pair<std::string, std::string>> overrides);

}  // namespace invar
