#include "invar/image/encode.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// libjpeg's own header wants the two above.
#include <jpeglib.h>
#include <png.h>

#include <cstring>
#include <new>

#include "invar/core/error.h"
#include "invar/io/file.h"

namespace invar {

namespace {

void check_image(const Image& image, const char* format, std::int64_t most_side) {
    check<UsageError>(image.height > 0 && image.width > 0 && image.height <= most_side && image.width <= most_side,
                      "an image of {} x {} pixels cannot be written as {}", image.height, image.width, format);
    check<UsageError>(image.channels == 1 || image.channels == 3, "an image of {} channels; 1 and 3 can be written",
                      image.channels);
    check<UsageError>(image.pixels.size() == std::size_t(image.height) * image.stride(),
                      "an image of {} x {} x {} with {} bytes", image.height, image.width, image.channels,
                      image.pixels.size());
}

struct PngOutput {
    std::string bytes;
    char error[128] = "";
};

[[noreturn]] void leave_png(png_structp png, png_const_charp text) {
    std::strncpy(static_cast<PngOutput*>(png_get_error_ptr(png))->error, text, sizeof PngOutput::error - 1);
    png_longjmp(png, 1);
}

void append(png_structp png, png_bytep from, std::size_t count) {
    bool good = true;  // an exception must not fly through libpng
    try {
        static_cast<PngOutput*>(png_get_io_ptr(png))->bytes.append(reinterpret_cast<const char*>(from), count);
    } catch (const std::bad_alloc&) {
        good = false;
    }
    if (!good) png_error(png, "out of memory");
}

struct PngWriter {
    png_structp png = nullptr;
    png_infop info = nullptr;
    PngWriter() = default;
    PngWriter(const PngWriter&) = delete;
    PngWriter& operator=(const PngWriter&) = delete;
    ~PngWriter() { png_destroy_write_struct(&png, &info); }

    void write(const Image& image, PngOutput& output) {
        if (setjmp(png_jmpbuf(png)) != 0) fail("an image cannot be written as PNG: {}", output.error);
        info = png_create_info_struct(png);
        if (info == nullptr) png_error(png, "out of memory");
        png_set_write_fn(png, &output, append, [](png_structp) {});
        png_set_IHDR(png, info, png_uint_32(image.width), png_uint_32(image.height), 8,
                     image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
        png_write_info(png, info);
        for (std::int64_t y = 0; y < image.height; ++y) png_write_row(png, image.row(y));
        png_write_end(png, nullptr);
    }
};

struct JpegWriter {
    struct Errors {
        jpeg_error_mgr manager;  // first, so that libjpeg's pointer to it is one to this
        std::jmp_buf jump;
        char text[JMSG_LENGTH_MAX];
    };
    jpeg_compress_struct info{};
    Errors errors{};
    unsigned char* bytes = nullptr;  // by malloc, grown by libjpeg
    unsigned long count = 0;
    JpegWriter() = default;
    JpegWriter(const JpegWriter&) = delete;
    JpegWriter& operator=(const JpegWriter&) = delete;
    ~JpegWriter() {
        jpeg_destroy_compress(&info);
        std::free(bytes);
    }

    void write(const Image& image, int quality) {
        info.err = jpeg_std_error(&errors.manager);
        errors.manager.error_exit = [](j_common_ptr common) {
            auto* own = reinterpret_cast<Errors*>(common->err);
            own->manager.format_message(common, own->text);
            std::longjmp(own->jump, 1);
        };
        errors.manager.output_message = [](j_common_ptr) {};
        if (setjmp(errors.jump) != 0) fail("an image cannot be written as JPEG: {}", errors.text);
        jpeg_create_compress(&info);
        jpeg_mem_dest(&info, &bytes, &count);
        info.image_width = JDIMENSION(image.width);
        info.image_height = JDIMENSION(image.height);
        info.input_components = int(image.channels);
        info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_set_defaults(&info);
        jpeg_set_quality(&info, quality, TRUE);
        jpeg_start_compress(&info, TRUE);
        while (info.next_scanline < info.image_height) {
            JSAMPROW row = const_cast<JSAMPROW>(image.row(info.next_scanline));
            jpeg_write_scanlines(&info, &row, 1);
        }
        jpeg_finish_compress(&info);
    }
};

}  // namespace

std::string encode_png(const Image& image) {
    check_image(image, "PNG", 1'000'000);
    PngOutput output;
    PngWriter writer;
    writer.png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &output, leave_png, [](png_structp, png_const_charp) {});
    check(writer.png != nullptr, "libpng cannot start; is its version another one than at build time?");
    writer.write(image, output);
    return std::move(output.bytes);
}

void write_png(const std::filesystem::path& path, const Image& image) {
    write_file_atomically(path, encode_png(image));
}

std::string encode_jpeg(const Image& image, int quality) {
    check_image(image, "JPEG", 65500);
    check<UsageError>(quality >= 1 && quality <= 100, "JPEG quality {}, expected 1 to 100", quality);
    JpegWriter writer;
    writer.write(image, quality);
    return {reinterpret_cast<const char*>(writer.bytes), writer.count};
}

}  // namespace invar
