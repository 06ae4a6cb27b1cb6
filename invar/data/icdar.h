// data=icdar2015: photographs with the texts in them, as ICDAR 2015 publishes them, or anyone's in that form: an image
// and a file of lines x1,y1,x2,y2,x3,y3,x4,y4,transcription for each.
#pragma once

#include <filesystem>

#include "invar/data/text_images.h"
#include "invar/detect/icdar.h"

namespace invar {

struct IcdarDataOptions : TextImagesOptions {
    std::string root = "data";
    std::string format = "quadrilaterals";
    double val_share = 0.2;  // where there are no images to validate on
    std::string on_broken = "refuse";
};

struct IcdarFiles {
    std::vector<std::filesystem::path> images, truths;  // pairs
    std::vector<std::string> notes;
};

// As published: ch4_training_images with ch4_training_localization_transcription_gt, ch4_test_images with
// Challenge4_Test_Task1_GT. Otherwise train and val (or test), or the root alone, with the folders images and gt, or
// with both kinds of files in one. The truth of img_1.jpg is gt_img_1.txt, img_1.txt or img_1.jpg.txt. A UsageError
// for images without ground truth and for ground truth without an image.
IcdarFiles list_icdar(const IcdarDataOptions& options, Split split, std::uint64_t seed);

class IcdarDataset final : public TextImages {
  public:
    IcdarDataset(const IcdarDataOptions& options, Split split, std::uint64_t seed);

    std::int64_t size() const override { return std::int64_t(files_.images.size()); }
    TextImage load(std::int64_t index) const override;
    std::string sample_name(std::int64_t index) const override;
    std::vector<std::string> notes() const override { return files_.notes; }

  private:
    IcdarFiles files_;
    std::vector<std::vector<detect::TextRegion>> truths_;
};

}  // namespace invar
