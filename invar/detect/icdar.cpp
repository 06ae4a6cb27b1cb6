#include "invar/detect/icdar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/safetensors_header.h"

namespace invar::detect {

namespace {

constexpr std::uint64_t kMostBytes = 16 << 20;
constexpr std::size_t kMostPoints = 128, kMostTexts = 10000;
constexpr double kFurthest = 1e6;  // pixels: no image is larger
constexpr std::string_view kLine = "a line is x1,y1,x2,y2,x3,y3,x4,y4,transcription";

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r";
    const std::size_t first = text.find_first_not_of(kSpace);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<double> number_in(std::string_view cell) {
    cell = trimmed(cell);
    double value = 0;
    const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    const bool whole = !cell.empty() && stop == cell.data() + cell.size() && error == std::errc();
    return whole ? std::optional(value) : std::nullopt;
}

class LineParser {
  public:
    LineParser(std::string_view line, const std::string& file, std::int64_t number, TruthFormat format)
        : line_(line), file_(file), number_(number), format_(format) {}

    TextRegion parse() {
        const std::size_t count = format_ == TruthFormat::quadrilaterals ? 8 : leading_numbers();
        TextRegion text;
        for (std::size_t i = 0; i < count; i += 2) {
            const double x = coordinate(i), y = coordinate(i + 1);
            text.polygon.push_back({x, y});
        }
        text.transcription = at_ < line_.size() ? line_.substr(at_) : std::string_view();
        while (text.transcription.ends_with('\r')) text.transcription.pop_back();
        text.dont_care = trimmed(text.transcription) == "###";
        return text;
    }

  private:
    // How many numbers the line begins with, as an even number; its last cell is the transcription, whatever it holds.
    std::size_t leading_numbers() const {
        std::size_t count = 0;
        for (std::size_t at = 0, comma; (comma = line_.find(',', at)) != line_.npos; at = comma + 1, ++count)
            if (!number_in(line_.substr(at, comma - at))) break;
        check<IoError>(count / 2 <= kMostPoints, "{}:{}: a polygon of {} points; {} are the most", file_, number_,
                       count / 2, kMostPoints);
        return std::max<std::size_t>(count / 2 * 2, 8);
    }

    double coordinate(std::size_t index) {
        check<IoError>(at_ <= line_.size(), "{}:{}: {} coordinates, and 8 are the least; {}", file_, number_, index,
                       kLine);
        const std::size_t comma = std::min(line_.find(',', at_), line_.size());
        const std::string_view cell = line_.substr(at_, comma - at_);
        at_ = comma + 1;
        const std::optional<double> value = number_in(cell);
        check<IoError>(value.has_value(), "{}:{}: {} is no number, where coordinate {} should stand; {}", file_,
                       number_, Quoted{cell.substr(0, 40)}, index + 1, kLine);
        check<IoError>(std::abs(*value) <= kFurthest, "{}:{}: coordinate {} is {}, which lies in no image", file_,
                       number_, index + 1, Quoted{cell.substr(0, 40)});  // not NaN either
        return *value;
    }

    std::string_view line_;
    const std::string& file_;
    std::int64_t number_;
    TruthFormat format_;
    std::size_t at_ = 0;
};

// What every pair would work out again.
struct Prepared {
    const Polygon& polygon;
    Bounds bounds;
    double area;
    explicit Prepared(const Polygon& p) : polygon(p), bounds(bounds_of(cleaned(p))), area(covered_area(p)) {}
};

double shared_area(const Prepared& a, const Prepared& b) {
    return a.bounds.overlaps(b.bounds) ? intersection_area(a.polygon, b.polygon) : 0;
}

bool fits(const Prepared& truth, const Prepared& detection, double least) {
    // No two polygons overlap by more than the smaller one.
    if (!(std::min(truth.area, detection.area) > least * std::max(truth.area, detection.area))) return false;
    const double shared = shared_area(truth, detection), both = truth.area + detection.area - shared;
    return both > 0 && shared / both > least;
}

}  // namespace

std::vector<TextRegion> parse_ground_truth(std::string_view text, const std::string& file, TruthFormat format) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
    std::vector<TextRegion> texts;
    for (std::int64_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
        const std::string_view line = text.substr(0, end);
        const std::size_t ending = text.substr(end).starts_with("\r\n") ? 2 : 1;  // or \r alone, of old Macs
        text.remove_prefix(std::min(end + ending, text.size()));
        if (trimmed(line).empty()) continue;
        check<IoError>(texts.size() < kMostTexts, "{}:{}: more than {} texts in one image", file, number, kMostTexts);
        texts.push_back(LineParser(line, file, number, format).parse());
    }
    return texts;
}

std::vector<TextRegion> read_ground_truth(const std::filesystem::path& path, TruthFormat format) {
    return parse_ground_truth(read_file(path, kMostBytes), path.string(), format);
}

ImageOverlaps::ImageOverlaps(std::span<const TextRegion> truths, std::span<const Detection> detections,
                             const IcdarOptions& options, const Stopped& stopped) {
    std::vector<Prepared> prepared;
    for (const Detection& detection : detections) prepared.emplace_back(detection.polygon);
    ignored_.assign(detections.size(), false);
    for (const TextRegion& truth : truths) {
        leave_if(stopped);
        const Prepared here(truth.polygon);
        Truth& entry = truths_.emplace_back(Truth{truth.dont_care, {}});
        for (std::size_t i = 0; i < prepared.size(); ++i) {
            if (!truth.dont_care && fits(here, prepared[i], options.iou)) entry.fits.push_back(i);
            if (truth.dont_care && !ignored_[i] && prepared[i].area > 0)
                ignored_[i] = shared_area(here, prepared[i]) / prepared[i].area > options.dont_care_overlap;
        }
    }
}

MatchedImage ImageOverlaps::match(std::size_t detections) const {
    detections = std::min(detections, ignored_.size());
    MatchedImage image;
    image.detection_of.assign(truths_.size(), -1);
    std::vector<bool> taken = ignored_;
    for (std::size_t i = 0; i < truths_.size(); ++i) {
        if (truths_[i].dont_care) continue;
        ++image.counts.truths;
        for (const std::size_t detection : truths_[i].fits) {
            if (detection >= detections) break;
            if (taken[detection]) continue;
            taken[detection] = true;
            image.detection_of[i] = std::int64_t(detection);
            ++image.counts.matched;
            break;
        }
    }
    image.counts.detections =
        std::int64_t(std::count(ignored_.begin(), ignored_.begin() + std::ptrdiff_t(detections), false));
    return image;
}

MatchedImage match_image(std::span<const TextRegion> truths, std::span<const Detection> detections,
                         const IcdarOptions& options, const Stopped& stopped) {
    return ImageOverlaps(truths, detections, options, stopped).match();
}

}  // namespace invar::detect
