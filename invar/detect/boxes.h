// From a map of probabilities to texts: regions above a threshold, a box or polygon around each, grown back to what was
// shrunk for the labels. Steps and defaults as in DBNet's own post-processing.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/detect/contours.h"
#include "invar/detect/polygon.h"

namespace invar::detect {

enum class BoxShape { quadrilateral, polygon };
// Over which pixels the mean probability of a candidate is taken: its box, or what its region's border encloses.
enum class ScoreArea { box, border };
// How far a candidate is grown: by area * ratio / perimeter, or by what undoes the shrinking of a rectangle's labels.
enum class Unclip { ratio, inverse };

struct BoxOptions {
    BoxShape shape = BoxShape::quadrilateral;
    ScoreArea score_area = ScoreArea::box;
    double bin_thresh = 0.3;  // a pixel is text where its probability is above this
    double box_thresh = 0.6;  // candidates whose mean probability is below this are dropped; DBNet's code has 0.7
    Unclip unclip = Unclip::ratio;
    double unclip_ratio = 1.5;
    double shrink_ratio = 0.4;  // of the labels; for Unclip::inverse
    double min_size = 3;        // in pixels of the map: a candidate's short side, before it is grown; then 2 more
    std::int64_t max_candidates = 1000;  // the largest regions
    double tolerance = 0.002;            // of a polygon's perimeter, by which points are left out of it, grown or not
};

struct Detection {
    Polygon polygon;  // in pixels of the image
    double score = 0;
    std::int64_t region = -1;  // which of MapRegions it comes from
};

// A region's shape in the map, not yet grown. Does not depend on box_thresh, unclip and its ratio.
struct Candidate {
    Polygon polygon;      // the quadrilateral's corners, or the simplified border
    Rectangle rectangle;  // the smallest around it
    double score = 0;
    std::int64_t region = -1;
};

std::vector<Candidate> find_candidates(const MapView& map, const BoxOptions& options = {});
std::vector<Candidate> find_candidates(const MapView& map, const MapRegions& regions, const BoxOptions& options);

// Those of box_thresh and above, grown, and scaled from the map's size to the image's; best scores first.
std::vector<Detection> grow_candidates(const std::vector<Candidate>& candidates, const MapView& map,
                                       std::int64_t image_height, std::int64_t image_width, const BoxOptions& options);

// Both in one.
std::vector<Detection> find_boxes(const MapView& map, std::int64_t image_height, std::int64_t image_width,
                                  const BoxOptions& options = {});

// The distance that undoes shrink_distance for a rectangle that was shrunk to this area and perimeter.
double unshrink_distance(double area, double perimeter, double shrink_ratio);

}  // namespace invar::detect
