// Images travel as bytes and become numbers on the GPU: the same ones that the host makes.
#include "invar/amp/autocast.h"
#include "invar/data/image_set.h"
#include "invar/data/loader.h"
#include "tests/gpu/fixture.h"

namespace invar {
namespace {

class GpuPixels : public testing::Gpu {
  protected:
    static std::shared_ptr<const Dataset> images(std::int64_t channels) {
        ImageSet set;
        set.height = 5, set.width = 7, set.channels = channels, set.classes = 3;
        for (std::int64_t i = 0; i < 40 * 35 * channels; ++i) set.pixels.push_back(std::uint8_t(i * 37 + i / 11));
        for (int i = 0; i < 40; ++i) set.labels.push_back(std::uint8_t(i % 3));
        return std::make_shared<ImageDataset>("images", std::move(set), 0.45, 0.23, ImageAugment{true, true, 2, 9});
    }
    static Loader loader(std::int64_t channels, Device device, int workers, double mixup) {
        LoaderOptions options;
        options.batch_size = 8, options.seed = 3, options.num_workers = workers, options.mixup = mixup;
        options.device = device;
        return Loader(images(channels), options);
    }
};

TEST_F(GpuPixels, AreTheNumbersOfTheHost) {
    for (const std::int64_t channels : {1, 3, 4})
        for (const int workers : {0, 3}) {
            Loader host = loader(channels, Device::cpu(), workers, 0),
                   device = loader(channels, Device::cuda(), workers, 0);
            for (const std::int64_t epoch : {0, 1}) {
                host.start_epoch(epoch);
                device.start_epoch(epoch);
                while (const std::optional<Batch> expected = host.next()) {
                    const Autocast low(Dtype::f16);  // casts nothing of it
                    const std::optional<Batch> batch = device.next();
                    ASSERT_TRUE(batch);
                    EXPECT_EQ((*batch)["x"].dtype(), Dtype::f32);
                    EXPECT_FALSE((*batch)["x"].device().is_cpu());
                    const auto a = (*batch)["x"].to_vector<float>(), b = (*expected)["x"].to_vector<float>();
                    ASSERT_EQ(a.size(), b.size());
                    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 5e-7);
                    EXPECT_EQ((*batch)["y"].to_vector<std::int64_t>(), (*expected)["y"].to_vector<std::int64_t>());
                }
                EXPECT_FALSE(device.next());
            }
        }
}

TEST_F(GpuPixels, AreMixedAsOnTheHostToAHalfOfAByte) {
    Loader host = loader(3, Device::cpu(), 2, 1.0), device = loader(3, Device::cuda(), 2, 1.0);
    host.start_epoch(0);
    device.start_epoch(0);
    while (const std::optional<Batch> expected = host.next()) {
        const std::optional<Batch> batch = device.next();
        ASSERT_TRUE(batch);
        const auto a = (*batch)["x"].to_vector<float>(), b = (*expected)["x"].to_vector<float>();
        for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.51 / 255 / 0.23);
        EXPECT_EQ((*batch)["targets"].to_vector<float>(), (*expected)["targets"].to_vector<float>());
    }
}

}  // namespace
}  // namespace invar
