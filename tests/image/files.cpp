#include "tests/image/files.h"

#include <zlib.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// libjpeg's own header wants the two above.
#include <jpeglib.h>

#include <algorithm>
#include <cmath>

namespace invar::testing {

Image test_picture(std::int64_t height, std::int64_t width, std::int64_t channels) {
    Image image(height, width, channels);
    for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x)
            for (std::int64_t c = 0; c < channels; ++c) {
                const std::int64_t wave = (x * (3 + c) + y * (5 - c) + x * y / 16) % 256;
                const std::int64_t tent = wave < 128 ? wave * 2 : 511 - wave * 2;
                image.at(y, x)[c] = std::uint8_t((tent * 3 + (x / 8 + y / 8 + c) % 2 * 200) / 4 % 256);
            }
    return image;
}

namespace {

void append_number(std::string& to, std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) to += char(value >> shift);
}

int channels_of(const PngKind& kind) {
    constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
    return kChannels[kind.colour];
}

// One pass of an interlaced image, or all of a plain one.
void append_pass(std::string& to, const PngKind& kind, const Sample& sample, std::int64_t y0, std::int64_t x0,
                 std::int64_t dy, std::int64_t dx) {
    if (x0 >= kind.width) return;
    for (std::int64_t y = y0; y < kind.height; y += dy) {
        to += '\0';  // no filter
        unsigned bits = 0, count = 0;
        for (std::int64_t x = x0; x < kind.width; x += dx) {
            for (int c = 0; c < channels_of(kind); ++c) {
                bits = bits << kind.bits | sample(y, x, c);
                for (count += unsigned(kind.bits); count >= 8; count -= 8) to += char(bits >> (count - 8));
            }
        }
        if (count > 0) to += char(bits << (8 - count));
    }
}

}  // namespace

std::string png_chunk(std::string_view name, std::string_view data) {
    std::string chunk;
    append_number(chunk, std::uint32_t(data.size()));
    chunk.append(name).append(data);
    const std::string_view summed = std::string_view(chunk).substr(4);
    append_number(chunk, std::uint32_t(crc32(0, reinterpret_cast<const Bytef*>(summed.data()), uInt(summed.size()))));
    return chunk;
}

std::string png_header(const PngKind& kind) {
    std::string data;
    append_number(data, kind.width);
    append_number(data, kind.height);
    data += char(kind.bits);
    data += char(kind.colour);
    data += '\0';
    data += '\0';
    data += char(kind.interlaced ? 1 : 0);
    return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", data);
}

std::string png_rows(const PngKind& kind, const Sample& sample) {
    std::string rows;
    if (!kind.interlaced) {
        append_pass(rows, kind, sample, 0, 0, 1, 1);
        return rows;
    }
    constexpr int kPasses[7][4] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                                   {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}};
    for (const auto& [y, x, dy, dx] : kPasses) append_pass(rows, kind, sample, y, x, dy, dx);
    return rows;
}

std::string deflated(std::string_view bytes) {
    uLongf size = compressBound(uLong(bytes.size()));
    std::string packed(size, '\0');
    compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
              uLong(bytes.size()), 9);
    packed.resize(size);
    return packed;
}

std::string make_png(const PngKind& kind, const Sample& sample, std::string_view extra) {
    return png_header(kind) + std::string(extra) + png_chunk("IDAT", deflated(png_rows(kind, sample))) +
           png_chunk("IEND", "");
}

std::string make_jpeg(std::int64_t height, std::int64_t width, const std::vector<std::uint8_t>& pixels,
                      const JpegKind& kind) {
    using Colours = JpegKind::Colours;
    const bool inks = kind.colours == Colours::cmyk || kind.colours == Colours::ycck;
    jpeg_compress_struct info{};
    jpeg_error_mgr errors{};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* bytes = nullptr;
    unsigned long count = 0;
    jpeg_mem_dest(&info, &bytes, &count);
    info.image_height = JDIMENSION(height), info.image_width = JDIMENSION(width);
    info.input_components = kind.colours == Colours::grey ? 1 : inks ? 4 : 3;
    info.in_color_space = kind.colours == Colours::grey ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&info);
    if (kind.colours == Colours::rgb) jpeg_set_colorspace(&info, JCS_RGB);
    if (kind.colours == Colours::ycck) jpeg_set_colorspace(&info, JCS_YCCK);
    jpeg_set_quality(&info, kind.quality, TRUE);
    if (kind.colours == Colours::ycc || kind.colours == Colours::ycck)
        info.comp_info[0].h_samp_factor = kind.horizontal, info.comp_info[0].v_samp_factor = kind.vertical;
    if (kind.colours == Colours::ycck)
        info.comp_info[3].h_samp_factor = kind.horizontal, info.comp_info[3].v_samp_factor = kind.vertical;
    if (kind.progressive) jpeg_simple_progression(&info);
    std::vector<jpeg_scan_info> scans;
    for (int c = 0; kind.separate && c < info.num_components; ++c) scans.push_back({1, {c}, 0, 63, 0, 0});
    if (kind.separate) info.scan_info = scans.data(), info.num_scans = int(scans.size());
    info.arith_code = kind.arithmetic ? TRUE : FALSE;
    info.restart_interval = unsigned(kind.restart);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        auto* row = const_cast<JSAMPROW>(pixels.data() + std::size_t(info.next_scanline) * std::size_t(width) *
                                                             std::size_t(info.input_components));
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    std::string file(reinterpret_cast<const char*>(bytes), count);
    jpeg_destroy_compress(&info);
    std::free(bytes);
    return file;
}

std::string with_segment(std::string jpeg, int marker, std::string_view data) {
    std::string segment{char(0xff), char(marker), char((data.size() + 2) >> 8), char(data.size() + 2)};
    return jpeg.insert(2, segment.append(data));
}

std::string exif_block(int orientation, bool big_endian) {
    std::string block = big_endian ? "MM" : "II";
    const auto number = [&](std::uint32_t value, int count) {
        for (int i = 0; i < count; ++i) block += char(value >> 8 * (big_endian ? count - 1 - i : i));
    };
    number(42, 2), number(8, 4);                                  // where the directory is
    number(1, 2), number(0x0112, 2), number(3, 2), number(1, 4);  // one entry: orientation, one short
    number(std::uint32_t(orientation), 2), number(0, 2), number(0, 4);
    return block;
}

int distance(const Image& a, const Image& b) {
    if (a.size() != b.size() || a.channels != b.channels) return 256;
    int most = 0;
    for (std::size_t i = 0; i < a.pixels.size(); ++i) most = std::max(most, std::abs(a.pixels[i] - b.pixels[i]));
    return most;
}

}  // namespace invar::testing
