// Which samples a task is asked to show.
#include "invar/train/review.h"

#include "tests/tasks/line.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

// Samples that are their own numbers.
class Numbers final : public Dataset {
  public:
    explicit Numbers(std::int64_t size) : size_(size) {}
    std::string name() const override { return "numbers"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {{1}, 1}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        const auto n = std::int64_t(indices.size());
        return Batch({{"x", Tensor::from(std::vector<std::int64_t>(indices.begin(), indices.end()), {n, 1})}}, n);
    }

  private:
    std::int64_t size_;
};

// Takes down what it is given to show.
class Showing final : public Task {
  public:
    std::string name() const override { return "showing"; }
    std::shared_ptr<const Dataset> data(Split) const override { return nullptr; }
    std::unique_ptr<Module> make_model() const override { return std::make_unique<Constant>(1); }
    Tensor loss(Module&, const Batch&) const override { return Tensor::scalar(0); }
    std::vector<Image> pictures(Module& model, const NextBatch& next) const override {
        EXPECT_FALSE(model.training());
        while (const std::optional<Batch> batch = next()) shown.push_back((*batch)["x"].to_vector<std::int64_t>());
        return {};
    }
    mutable std::vector<std::vector<std::int64_t>> shown;  // batch by batch
};

std::vector<std::vector<std::int64_t>> shown_of(std::int64_t size, std::int64_t most) {
    const Showing task;
    const std::unique_ptr<Module> model = task.make_model();
    const Loader data(std::make_shared<Numbers>(size), {});
    pictures_of(task, *model, data, Precision(), most);
    return task.shown;
}

TEST(Pictures, AreOfSamplesSpreadOverTheDataOneByOne) {
    using Batches = std::vector<std::vector<std::int64_t>>;
    EXPECT_EQ(shown_of(10, 4), (Batches{{0}, {2}, {4}, {6}}));
    EXPECT_EQ(shown_of(300, 3), (Batches{{0}, {100}, {200}}));
    EXPECT_EQ(shown_of(3, 4), (Batches{{0}, {1}, {2}})) << "no more than there are";
}

}  // namespace
}  // namespace invar
