#include "invar/optim/sharding.h"

#include <algorithm>

namespace invar {

std::vector<Segment> share_of(const std::vector<Segment>& segments, const std::vector<Bucket>& buckets, int rank) {
    std::vector<Segment> mine;
    std::size_t b = 0;
    for (const Segment& segment : segments) {
        const std::int64_t end = segment.begin + segment.count;
        while (b > 0 && buckets[b].begin > segment.begin) --b;
        while (b + 1 < buckets.size() && buckets[b + 1].begin <= segment.begin) ++b;
        bool any = false;
        for (std::size_t k = b; k < buckets.size() && buckets[k].begin < end; ++k) {
            const std::int64_t begin = buckets[k].begin + rank * buckets[k].piece;
            const std::int64_t from = std::max(segment.begin, begin), to = std::min(end, begin + buckets[k].piece);
            if (from >= to) continue;
            Segment part = segment;
            part.begin = buckets[k].share + (from - begin);
            part.count = to - from;
            const bool joins = !mine.empty() && part.missed < 0 && mine.back().missed < 0 &&
                               mine.back().group == part.group && mine.back().begin + mine.back().count == part.begin;
            if (joins)
                mine.back().count += part.count;
            else
                mine.push_back(part);
            any = true;
        }
        if (!any && segment.missed >= 0) {
            mine.push_back(segment);
            mine.back().begin = 0, mine.back().count = 0;
        }
    }
    return mine;
}

}  // namespace invar
