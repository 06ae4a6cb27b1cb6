// WebP by libwebp, where it was found when this was configured.
#include "invar/core/error.h"
#include "invar/image/formats.h"

#ifdef INVAR_HAS_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>

namespace invar {

namespace {

constexpr double kNoBound = 0;  // one colour all over takes the same few bytes at any size

struct Demuxer {
    WebPDemuxer* demux;
    explicit Demuxer(EncodedBytes bytes) {
        const WebPData data{bytes.data(), bytes.size()};
        demux = WebPDemux(&data);
    }
    Demuxer(const Demuxer&) = delete;
    Demuxer& operator=(const Demuxer&) = delete;
    ~Demuxer() { WebPDemuxDelete(demux); }

    Orientation orientation() const {
        WebPChunkIterator chunk;
        Orientation found;
        if (WebPDemuxGetChunk(demux, "EXIF", 1, &chunk) != 0) {
            EncodedBytes exif(chunk.chunk.bytes, chunk.chunk.size);
            constexpr std::uint8_t kPrefix[] = {'E', 'x', 'i', 'f', 0, 0};  // which some programs add as in a JPEG
            if (exif.size() >= sizeof kPrefix && std::equal(kPrefix, kPrefix + sizeof kPrefix, exif.begin()))
                exif = exif.subspan(sizeof kPrefix);
            found = exif_orientation(exif);
        }
        WebPDemuxReleaseChunkIterator(&chunk);
        return found;
    }
};

struct Animation {
    WebPAnimDecoder* decoder;
    explicit Animation(EncodedBytes bytes) {
        const WebPData data{bytes.data(), bytes.size()};
        decoder = WebPAnimDecoderNew(&data, nullptr);
    }
    Animation(const Animation&) = delete;
    Animation& operator=(const Animation&) = delete;
    ~Animation() { WebPAnimDecoderDelete(decoder); }
};

class WebpFile final : public EncodedImage {
  public:
    WebpFile(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) : name_(name), bytes_(bytes) {
        WebPBitstreamFeatures features;
        const VP8StatusCode status = WebPGetFeatures(bytes.data(), bytes.size(), &features);
        check_good(status == VP8_STATUS_OK, status == VP8_STATUS_NOT_ENOUGH_DATA ? "it ends too soon" : "its header");
        size_ = {features.height, features.width};
        animated_ = features.has_animation != 0;
        check_image_size(size_, name, limits, bytes.size(), kNoBound);
        const Demuxer demuxer(bytes);
        check_good(demuxer.demux != nullptr, "a chunk is missing or cut short");
        orientation_ = demuxer.orientation();
    }

    Image decode() override {
        Image image(size_.height, size_.width);
        if (animated_) {
            first_frame(image);
            return image;
        }
        check_good(WebPDecodeRGBInto(bytes_.data(), bytes_.size(), image.pixels.data(), image.pixels.size(),
                                     int(image.stride())) != nullptr,
                   "its pixels");
        return image;
    }

  private:
    void check_good(bool good, const char* what) const {
        check<IoError>(good, "{}: a broken WebP file ({}); fetch it again or leave it out", name_, what);
    }
    void first_frame(Image& image) const {
        const Animation animation(bytes_);
        std::uint8_t* rgba = nullptr;
        int time = 0;
        check_good(animation.decoder != nullptr && WebPAnimDecoderGetNext(animation.decoder, &rgba, &time) != 0,
                   "its first frame");
        for (std::size_t from = 0, to = 0; to < image.pixels.size(); from += 4, to += 3)
            std::copy_n(rgba + from, 3, image.pixels.data() + to);
    }

    std::string name_;
    EncodedBytes bytes_;
    bool animated_ = false;
};

}  // namespace

std::unique_ptr<EncodedImage> open_webp(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) {
    return std::make_unique<WebpFile>(bytes, name, limits);
}

}  // namespace invar

#else

namespace invar {

std::unique_ptr<EncodedImage> open_webp(EncodedBytes, const std::string& name, const DecodeLimits&) {
    fail<IoError>(
        "{}: a WebP file, which this build does not read; install libwebp-dev and build again, or save it as "
        "PNG",
        name);
}

}  // namespace invar

#endif
