#include "invar/tasks/text_detection.h"

#include <cmath>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/data/pixels.h"
#include "invar/data/text_batch.h"
#include "invar/ops/ops.h"
#include "invar/tasks/prediction.h"
#include "invar/tasks/registry.h"
#include "invar/tasks/text_pictures.h"
#include "invar/tasks/text_review.h"

namespace invar {

namespace {

// {probability, threshold}
Tensors maps_of(Module& model, const Batch& batch) {
    const Tensors maps = model(Tensors{batch["x"]});
    check<UsageError>(maps.size() == 2,
                      "task text_detection takes a model that gives a probability and a threshold map, such as dbnet; "
                      "this one has {} results",
                      maps.size());
    return maps;
}

// The probabilities of each image in turn.
void for_each_map(const Tensor& logits, const std::function<void(const detect::MapView&)>& f) {
    const NoGrad no_grad;
    const std::int64_t height = logits.size(1), width = logits.size(2);
    const auto values = ops::sigmoid(ops::cast(logits, Dtype::f32)).to_vector<float>();
    for (std::int64_t i = 0; i < logits.size(0); ++i) f({values.data() + i * height * width, height, width});
}

double hundredths(double value) {
    return std::round(100 * value) / 100;
}

}  // namespace

std::vector<std::vector<detect::Detection>> find_texts(const Tensor& probability_logits,
                                                       const detect::BoxOptions& options) {
    check(probability_logits.rank() == 3, "texts are found in maps [n, height, width], not {}",
          probability_logits.shape().str());
    std::vector<std::vector<detect::Detection>> found;
    for_each_map(probability_logits, [&](const detect::MapView& map) {
        found.push_back(detect::find_boxes(map, map.height, map.width, options));
    });
    return found;
}

TextDetection::TextDetection(TaskParts parts, TextDetectionOptions options)
    : parts_(std::move(parts)), options_(options) {}

Tensor TextDetection::loss(Module& model, const Batch& batch) const {
    const Tensors maps = maps_of(model, batch);
    return db_loss(maps[0], maps[1], batch, options_.loss).total;
}

std::string TextDetection::why_loss_is_no_mean() const {
    return "DBNet's loss chooses hard negatives among all pixels of a batch";
}

std::vector<Metric> TextDetection::metrics() const {
    const auto share = [](const char* name) { return Metric{.name = name, .print = Metric::Print::percent}; };
    return {mean_loss(), share("hmean"), share("precision"), share("recall")};
}

std::vector<double> TextDetection::measure(Module& model, const Batch& batch) const {
    const Tensors maps = maps_of(model, batch);
    check(maps[0].size(0) == batch.size, "a batch of {} samples has maps {}", batch.size, maps[0].shape().str());
    double loss = 0;
    for (std::int64_t i = 0; i < batch.size; ++i) {
        const auto one = [i](const Tensor& x) { return ops::slice(x, 0, i, i + 1); };
        loss += db_loss(one(maps[0]), one(maps[1]), batch.map(one), options_.loss).total.item();
    }
    const std::vector<std::vector<detect::TextRegion>> texts = texts_of(batch);
    const std::vector<std::vector<detect::Detection>> found = find_texts(maps[0], options_.boxes);
    detect::DetectionCounts counts;
    for (std::size_t i = 0; i < found.size(); ++i)
        counts += detect::match_image(texts.at(i), found[i], options_.protocol).counts;
    const double matched = double(counts.matched), truths = double(counts.truths), boxes = double(counts.detections);
    return {loss, double(batch.size), 2 * matched, truths + boxes, matched, boxes, matched, truths};
}

std::optional<ImagePrediction> TextDetection::predict(Module& model, const SeenImage& image) const {
    const Tensor logits = maps_of(model, Batch({{"x", image.x}}, 1))[0];
    const std::vector<detect::Detection> found =
        found_in_image(find_texts(logits, options_.boxes).at(0), {logits.size(1), logits.size(2)}, image);
    ImagePrediction prediction;
    auto texts = nlohmann::ordered_json::array();
    for (const detect::Detection& detection : found) {
        auto polygon = nlohmann::ordered_json::array();
        for (const detect::Point& p : detection.polygon) polygon.push_back({hundredths(p.x), hundredths(p.y)});
        texts.push_back({{"polygon", polygon}, {"score", std::round(detection.score * 1e4) / 1e4}});
    }
    prediction.found["texts"] = texts;
    prediction.cells = {fmt::format("{} text{}", found.size(), found.size() == 1 ? "" : "s"),
                        found.empty() ? ""
                        : found.size() == 1
                            ? fmt::format("score {:.2f}", found.front().score)
                            : fmt::format("scores {:.2f} to {:.2f}", found.back().score, found.front().score)};
    prediction.picture = draw_found(image.whole, found);
    return prediction;
}

std::vector<Image> TextDetection::pictures(Module& model, const NextBatch& next) const {
    const std::optional<PixelScale> scale = data(Split::test)->pixels();
    if (!scale) return {};
    std::vector<Image> pictures;
    while (const std::optional<Batch> batch = next()) {
        const std::vector<Image> images = images_of((*batch)["x"], *scale);
        const std::vector<std::vector<detect::TextRegion>> texts = texts_of(*batch);
        const std::vector<std::vector<detect::Detection>> found = find_texts(maps_of(model, *batch)[0], options_.boxes);
        for (std::size_t i = 0; i < images.size(); ++i)
            pictures.push_back(draw_beside_truth(images[i], texts.at(i), found.at(i), options_.protocol));
    }
    return pictures;
}

std::vector<Remark> TextDetection::remarks_on_data(const Stopped& stopped) const {
    const auto* const texts = dynamic_cast<const TextImages*>(data(Split::test).get());
    if (texts == nullptr) return {};
    return remarks_on_ceiling(*texts, options_.boxes, options_.protocol, stopped);
}

std::vector<Remark> TextDetection::remarks_on_model(Module& model, const NextBatch& next) const {
    constexpr std::int64_t kImages = 100;
    TextReview review(options_.boxes, options_.protocol);
    while (review.images() < kImages) {
        const std::optional<Batch> batch = next();
        if (!batch) break;
        const std::vector<std::vector<detect::TextRegion>> texts = texts_of(*batch);
        std::size_t i = 0;
        for_each_map(maps_of(model, *batch)[0], [&](const detect::MapView& map) { review.add(map, texts.at(i++)); });
    }
    return review.remarks();
}

namespace {

// As the configuration sees them: one level of keys.
struct Keys {
    double probability_weight = DbLossOptions{}.probability, binary_weight = DbLossOptions{}.binary,
           threshold_weight = DbLossOptions{}.threshold, k = DbLossOptions{}.k;
    std::int64_t negatives = DbLossOptions{}.negatives;
    std::string shape = "quadrilateral";
    double bin_thresh = detect::BoxOptions{}.bin_thresh, box_thresh = detect::BoxOptions{}.box_thresh,
           unclip_ratio = detect::BoxOptions{}.unclip_ratio;
};

TextDetectionOptions options_of(const Keys& keys) {
    TextDetectionOptions options;
    options.loss = {keys.probability_weight, keys.binary_weight, keys.threshold_weight, keys.k, keys.negatives};
    options.boxes.shape = keys.shape == "polygon" ? detect::BoxShape::polygon : detect::BoxShape::quadrilateral;
    options.boxes.bin_thresh = keys.bin_thresh;
    options.boxes.box_thresh = keys.box_thresh;
    options.boxes.unclip_ratio = keys.unclip_ratio;
    return options;
}

const RegisterTask<Keys> kTextDetection{
    "text_detection",
    "Find texts in images: DBNet's loss, judged by the H-mean of ICDAR 2015's protocol.",
    [](const Keys& keys, const TaskParts& parts) { return std::make_shared<TextDetection>(parts, options_of(keys)); },
    {key("probability_weight", &Keys::probability_weight, at_least(0), "Of the cross entropy of the probability map."),
     key("binary_weight", &Keys::binary_weight, at_least(0), "Of the binary map's Dice loss."),
     key("threshold_weight", &Keys::threshold_weight, at_least(0), "Of the threshold map's L1 loss."),
     key("k", &Keys::k, above(0), "Steepness of the binary map, sigmoid(k (P - T))."),
     key("negatives", &Keys::negatives, within(0, 1 << 20), "Pixels without text that count for each one with it."),
     key("shape", &Keys::shape, one_of({"quadrilateral", "polygon"}), "What is put around a text."),
     key("bin_thresh", &Keys::bin_thresh, within(0, 1), "Pixels of a higher probability are text."),
     key("box_thresh", &Keys::box_thresh, within(0, 1), "Boxes of a lower mean probability are dropped."),
     key("unclip_ratio", &Keys::unclip_ratio, at_least(0), "How far boxes are grown, by area * ratio / perimeter.")}};

}  // namespace

}  // namespace invar
