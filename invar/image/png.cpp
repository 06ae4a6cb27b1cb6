// PNG by libpng. Its errors leave by longjmp; no object with a destructor lives in a frame that is jumped over.
#include <png.h>

#include <cstring>
#include <string_view>

#include "invar/core/error.h"
#include "invar/image/formats.h"

namespace invar {

namespace {

constexpr double kMostInflation = 1032;  // bytes that a byte of deflate can stand for

struct PngInput {
    EncodedBytes rest;
    char error[128] = "";
};

[[noreturn]] void leave(png_structp png, png_const_charp text) {
    auto* input = static_cast<PngInput*>(png_get_error_ptr(png));
    std::strncpy(input->error, text, sizeof input->error - 1);
    png_longjmp(png, 1);
}

void read_input(png_structp png, png_bytep to, std::size_t count) {
    auto* input = static_cast<PngInput*>(png_get_io_ptr(png));
    if (count > input->rest.size()) png_error(png, "the file ends too soon");
    std::memcpy(to, input->rest.data(), count);
    input->rest = input->rest.subspan(count);
}

struct PngReader {
    png_structp png = nullptr;
    png_infop info = nullptr;
    PngReader() = default;
    PngReader(const PngReader&) = delete;
    PngReader& operator=(const PngReader&) = delete;
    ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

// What the eXIf chunk tells, wherever in the file it is.
Orientation find_orientation(EncodedBytes bytes) {
    constexpr std::size_t kSignature = 8, kFrame = 12;  // length, name and checksum of a chunk
    for (std::size_t at = kSignature; bytes.size() - at >= kFrame;) {
        std::size_t length = 0;
        for (std::size_t i = 0; i < 4; ++i) length = length << 8 | bytes[at + i];
        if (length > bytes.size() - at - kFrame) break;
        if (std::memcmp(bytes.data() + at + 4, "eXIf", 4) == 0) return exif_orientation(bytes.subspan(at + 8, length));
        at += kFrame + length;
    }
    return {};
}

class PngFile final : public EncodedImage {
  public:
    PngFile(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) : name_(name), input_{bytes} {
        reader_.png =
            png_create_read_struct(PNG_LIBPNG_VER_STRING, &input_, leave, [](png_structp, png_const_charp) {});
        check<Error>(reader_.png != nullptr, "{}: libpng cannot start; is its version another one than at build time?",
                     name);
        read_header();
        const std::uint32_t height = png_get_image_height(reader_.png, reader_.info);
        const std::uint32_t width = png_get_image_width(reader_.png, reader_.info);
        const double bits =
            double(png_get_bit_depth(reader_.png, reader_.info)) * double(png_get_channels(reader_.png, reader_.info));
        check_image_size({height, width}, name, limits, bytes.size(), kMostInflation * 8 / bits);
        size_ = {height, width};
        orientation_ = find_orientation(bytes);
    }

    Image decode() override {
        Image image(size_.height, size_.width);
        std::vector<png_bytep> rows(std::size_t(size_.height));
        for (std::int64_t y = 0; y < size_.height; ++y) rows[std::size_t(y)] = image.row(y);
        ask_for_rgb();
        check<Error>(png_get_rowbytes(reader_.png, reader_.info) == image.stride(),
                     "{}: libpng makes rows of {} bytes, expected {}", name_,
                     png_get_rowbytes(reader_.png, reader_.info), image.stride());
        guarded([&] {
            png_read_image(reader_.png, rows.data());
            png_read_end(reader_.png, nullptr);
        });
        return image;
    }

  private:
    // Runs calls of libpng; what goes wrong in them is an IoError here.
    template <class Calls>
    void guarded(Calls calls) {
        if (setjmp(png_jmpbuf(reader_.png)) != 0)
            fail<IoError>("{}: a broken PNG file ({}); fetch it again or leave it out", name_, input_.error);
        calls();
    }
    void read_header() {
        // Texts and profiles change no pixel here, and may be large when unpacked.
        static constexpr png_byte kLeftOut[] = "iCCP\0iTXt\0tEXt\0zTXt\0sPLT\0eXIf\0hIST\0pCAL";
        guarded([&] {
            reader_.info = png_create_info_struct(reader_.png);
            if (reader_.info == nullptr) png_error(reader_.png, "out of memory");
            png_set_read_fn(reader_.png, &input_, read_input);
            png_set_keep_unknown_chunks(reader_.png, PNG_HANDLE_CHUNK_NEVER, kLeftOut, sizeof kLeftOut / 5);
            png_set_user_limits(reader_.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // ours come with a better line
            png_read_info(reader_.png, reader_.info);
        });
    }
    void ask_for_rgb() {
        guarded([&] {
            png_set_expand(reader_.png);  // palettes, less than 8 bits, transparent colours
            png_set_strip_16(reader_.png);
            png_set_gray_to_rgb(reader_.png);
            png_set_strip_alpha(reader_.png);
            png_set_interlace_handling(reader_.png);
            png_read_update_info(reader_.png, reader_.info);
        });
    }

    std::string name_;
    PngInput input_;
    PngReader reader_;
};

}  // namespace

std::unique_ptr<EncodedImage> open_png(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) {
    return std::make_unique<PngFile>(bytes, name, limits);
}

}  // namespace invar
