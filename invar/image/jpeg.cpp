// JPEG by libjpeg-turbo. Its errors leave by longjmp, never by exit; no object with a destructor lives in a frame that
// is jumped over.
#include <csetjmp>
#include <cstdio>
#include <cstring>
// libjpeg's own headers want the two above.
#include <jpeglib.h>
//
#include <jerror.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/image/formats.h"

namespace invar {

namespace {

// A block of 64 pixels takes a bit at the very least, of Huffman's code.
constexpr double kMostPixelsPerByte = 64 * 8;
// A progressive file is read once more for each scan, and may have any number of them. Real ones have about ten.
constexpr int kMostScans = 100;

struct JpegErrors {
    jpeg_error_mgr manager;  // first, so that libjpeg's pointer to it is one to this
    std::jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    errors->manager.format_message(info, errors->text);
    std::longjmp(errors->jump, 1);
}

// Warnings say that data is missing or wrong and was made up, but for these, which change no pixel.
bool is_harmless(int warning) {
    return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM || warning == JWRN_TOO_MUCH_DATA ||
           warning == JWRN_JFIF_MAJOR;
}

void take_message(j_common_ptr info, int level) {
    if (level < 0 && !is_harmless(info->err->msg_code)) leave(info);
}

void count_scans(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kMostScans);
    std::longjmp(errors->jump, 1);
}

struct Decompressor {
    jpeg_decompress_struct info{};  // may be destroyed as it is, all zero, too
    Decompressor() = default;
    Decompressor(const Decompressor&) = delete;
    Decompressor& operator=(const Decompressor&) = delete;
    ~Decompressor() { jpeg_destroy_decompress(&info); }
};

class JpegFile final : public EncodedImage {
  public:
    JpegFile(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) : name_(name) {
        info_.err = jpeg_std_error(&errors_.manager);
        errors_.manager.error_exit = leave;
        errors_.manager.emit_message = take_message;
        errors_.manager.output_message = [](j_common_ptr) {};
        progress_.progress_monitor = count_scans;
        read_header(bytes);
        check_image_size({info_.image_height, info_.image_width}, name, limits, bytes.size(),
                         info_.arith_code ? 0 : kMostPixelsPerByte);
        check_end(bytes);
        size_ = {info_.image_height, info_.image_width};
        orientation_ = find_orientation();
        choose_colours();
    }

    bool shrinks() const override { return true; }
    Image decode() override { return decode({0, 0, size_.height, size_.width}, 1).image; }
    DecodedRegion decode(const PixelBox& box, int shrink) override;

  private:
    // Runs calls of libjpeg; what goes wrong in them is an IoError here.
    template <class Calls>
    void guarded(Calls calls) {
        if (setjmp(errors_.jump) != 0)
            fail<IoError>("{}: a broken JPEG file ({}); fetch it again or leave it out", name_, errors_.text);
        calls();
    }
    void read_header(EncodedBytes bytes);
    void check_end(EncodedBytes bytes) const;
    Orientation find_orientation() const;
    void choose_colours();
    void read_rows(Image& image);
    bool has_four_inks() const { return info_.out_color_space == JCS_CMYK; }

    std::string name_;
    Decompressor decompressor_;
    jpeg_decompress_struct& info_ = decompressor_.info;
    jpeg_progress_mgr progress_{};
    JpegErrors errors_{};
};

void JpegFile::read_header(EncodedBytes bytes) {
    guarded([&] {
        jpeg_create_decompress(&info_);
        info_.progress = &progress_;
        jpeg_mem_src(&info_, bytes.data(), bytes.size());
        jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);
        jpeg_read_header(&info_, TRUE);
    });
}

// Within compressed data 0xff is never followed by the number of a marker, so an end that is there is the true one.
void JpegFile::check_end(EncodedBytes bytes) const {
    const std::uint8_t* begin = info_.src->next_input_byte;
    for (const std::uint8_t* p = bytes.data() + bytes.size() - 1; p > begin; --p)
        if (p[0] == JPEG_EOI && p[-1] == 0xff) return;
    fail<IoError>("{}: a truncated JPEG file (no end of image in {} bytes); fetch it again or leave it out", name_,
                  bytes.size());
}

Orientation JpegFile::find_orientation() const {
    constexpr char kExif[] = {'E', 'x', 'i', 'f', 0, 0};
    for (auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
        if (marker->marker != JPEG_APP0 + 1 || marker->data_length < sizeof kExif) continue;
        if (std::memcmp(marker->data, kExif, sizeof kExif) != 0) continue;
        return exif_orientation({marker->data + sizeof kExif, marker->data_length - sizeof kExif});
    }
    return {};
}

void JpegFile::choose_colours() {
    switch (info_.jpeg_color_space) {
        case JCS_GRAYSCALE:
        case JCS_YCbCr:
        case JCS_RGB:
            info_.out_color_space = JCS_RGB;
            break;
        case JCS_CMYK:
        case JCS_YCCK:
            info_.out_color_space = JCS_CMYK;
            break;
        default:
            fail<IoError>("{}: a JPEG file of {} components, whose colours nobody knows; save it as RGB", name_,
                          info_.num_components);
    }
}

// Inks lie inverted in the file, as Adobe's programs write them: 255 is no ink. So does Pillow take every such file.
void print_on_white(const std::uint8_t* inks, std::uint8_t* rgb, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i, inks += 4, rgb += 3) {
        const int light = inks[3];
        for (int c = 0; c < 3; ++c) {
            const int product = (255 - inks[c]) * light + 128;
            rgb[c] = std::uint8_t(light - ((product >> 8) + product) / 256);
        }
    }
}

// As many rows as the image has, from where the decoder stands.
void JpegFile::read_rows(Image& image) {
    std::vector<std::uint8_t> inks(has_four_inks() ? std::size_t(info_.output_width) * 4 : 0);
    for (std::int64_t y = 0; y < image.height; ++y) {
        JSAMPROW row = inks.empty() ? image.row(y) : inks.data();
        guarded([&] { jpeg_read_scanlines(&info_, &row, 1); });
        if (!inks.empty()) print_on_white(inks.data(), image.row(y), image.width);
    }
}

DecodedRegion JpegFile::decode(const PixelBox& box, int shrink) {
    info_.scale_num = 1;
    info_.scale_denom = unsigned(shrink);
    guarded([&] { jpeg_start_decompress(&info_); });
    const std::int64_t height = info_.output_height, width = info_.output_width;
    // Colours are interpolated, so that a pixel depends on those around it: a border keeps the box as it would be.
    constexpr std::int64_t kBorder = 2;
    const std::int64_t top = std::max<std::int64_t>(box.top / shrink - kBorder, 0);
    const std::int64_t left = std::max<std::int64_t>(box.left / shrink - kBorder, 0);
    const std::int64_t bottom = std::min((box.top + box.height + shrink - 1) / shrink + kBorder, height);
    const std::int64_t right = std::min((box.left + box.width + shrink - 1) / shrink + kBorder, width);
    JDIMENSION first = JDIMENSION(left), columns = JDIMENSION(right - left);
    if (columns < info_.output_width) guarded([&] { jpeg_crop_scanline(&info_, &first, &columns); });
    if (top > 0) guarded([&] { jpeg_skip_scanlines(&info_, JDIMENSION(top)); });

    DecodedRegion region{Image(bottom - top, std::int64_t(info_.output_width)), {}};
    read_rows(region.image);
    // What comes behind the last row that is wanted need not be read.
    if (bottom == height)
        guarded([&] { jpeg_finish_decompress(&info_); });
    else
        jpeg_abort_decompress(&info_);
    const double scale = 1.0 / shrink;
    region.box = {double(box.top) * scale - double(top), double(box.left) * scale - double(first),
                  double(box.height) * scale, double(box.width) * scale};
    return region;
}

}  // namespace

std::unique_ptr<EncodedImage> open_jpeg(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) {
    return std::make_unique<JpegFile>(bytes, name, limits);
}

}  // namespace invar
