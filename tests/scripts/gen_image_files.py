#!/usr/bin/env python3
"""Writes small image files (tests/fuzz/corpus/image) and their pixels (tests/support/image_files_expected.h).

    gen_image_files.py            needs Pillow; the pixels are Pillow's: ImageOps.exif_transpose, then convert("RGB")

Files that Pillow cannot write (16-bit and interlaced PNG, some kinds of BMP) are built here. 16-bit grey differs from
Pillow on purpose: Pillow saturates it, the decoders keep the high byte."""
import io, os, struct, zlib
from PIL import Image, ImageOps

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
FILES, HEADER = os.path.join(ROOT, 'fuzz/corpus/image'), os.path.join(ROOT, 'support/image_files_expected.h')
W, H = 11, 7


def picture(mode='RGB', w=W, h=H):
    """Smooth colors with an asymmetric pattern, so that any flip or swap changes pixels."""
    im = Image.new('RGB', (w, h))
    im.putdata([((x * 22 + y * 3) % 256, (y * 35 + x * 2) % 256, (255 - x * 11 - y * 9 + (40 if (x + 2 * y) % 5 == 0 else 0)) % 256)
                for y in range(h) for x in range(w)])
    if mode == 'RGBA':
        im.putalpha(Image.linear_gradient('L').resize((w, h)))
        return im
    return im.convert(mode)


def encode(im, kind, **options):
    out = io.BytesIO()
    im.save(out, kind, **options)
    return out.getvalue()


def chunk(name, data): return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))


def png(w, h, depth, color, rows, interlace=0):
    """A PNG of packed rows, without filters."""
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, depth, color, 0, 0, interlace)) +
            chunk(b'IDAT', zlib.compress(b''.join(b'\0' + r for r in rows))) + chunk(b'IEND', b''))


def adam7(im):
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = []
    for x0, y0, dx, dy in passes:
        for y in range(y0, im.height, dy):
            row = b''.join(bytes(im.getpixel((x, y))) for x in range(x0, im.width, dx))
            if row: rows.append(row)
    return png(im.width, im.height, 8, 2, rows, 1)


def rgb16(im):
    return png(im.width, im.height, 16, 2, [b''.join(bytes((v, 7)) for x in range(im.width) for v in im.getpixel((x, y)))
                                            for y in range(im.height)])


def grey16(im):
    return png(im.width, im.height, 16, 0, [b''.join(bytes((im.getpixel((x, y)), 9)) for x in range(im.width))
                                            for y in range(im.height)])


def bmp(w, h, bits, rows, masks=b'', compression=0):
    data = b''.join(r + bytes(-len(r) % 4) for r in rows)
    at = 54 + len(masks)
    return (b'BM' + struct.pack('<IHHI', at + len(data), 0, 0, at) +
            struct.pack('<IiiHHIIiiII', 40, w, h, 1, bits, compression, len(data), 0, 0, 0, 0) + masks + data)


def bmp16(im, five65):
    def pixel(x, y):
        r, g, b = im.getpixel((x, y))
        return struct.pack('<H', (r >> 3) << 11 | (g >> 2) << 5 | b >> 3 if five65 else (r >> 3) << 10 | (g >> 3) << 5 | b >> 3)
    rows = [b''.join(pixel(x, y) for x in range(im.width)) for y in reversed(range(im.height))]
    return bmp(im.width, im.height, 16, rows, struct.pack('<III', 0xF800, 0x7E0, 0x1F) if five65 else b'', 3 if five65 else 0)


def top_down(im):
    rows = [b''.join(bytes(reversed(im.getpixel((x, y)))) for x in range(im.width)) for y in range(im.height)]
    return bmp(im.width, -im.height, 24, rows)


def turned(kind, orientation, **options):
    exif = Image.Exif()
    exif[0x112] = orientation
    return encode(picture(), kind, exif=exif.tobytes(), **options)


def gif_part():
    """A frame smaller than the screen, with a transparent color."""
    small = picture('P', 5, 3)
    data = bytearray(encode(small, 'GIF', transparency=3))
    data[6:10] = struct.pack('<HH', W, H)
    at = data.index(b'\x2c', 13)
    while data[at + 1:at + 9] != struct.pack('<HHHH', 0, 0, 5, 3): at = data.index(b'\x2c', at + 1)
    data[at + 1:at + 5] = struct.pack('<HH', 4, 2)
    return bytes(data)


def files():
    rgb, two = picture(), [picture(), picture().transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    yield 'rgb.png', encode(rgb, 'PNG')
    yield 'rgba.png', encode(picture('RGBA'), 'PNG')
    yield 'grey.png', encode(picture('L'), 'PNG')
    yield 'grey_alpha.png', encode(picture('RGBA').convert('LA'), 'PNG')
    yield 'one_bit.png', encode(picture('1'), 'PNG')
    yield 'four_bits.png', png(W, H, 4, 0, [bytes(((x * 37 + y * 11) & 255) for x in range((W + 1) // 2)) for y in range(H)])
    yield 'palette.png', encode(picture('P'), 'PNG')
    yield 'palette_alpha.png', encode(rgb.quantize(8), 'PNG', transparency=2)
    yield 'rgb16.png', rgb16(rgb)
    yield 'grey16.png', grey16(picture('L'))
    yield 'interlaced.png', adam7(rgb)
    yield 'turned6.png', turned('PNG', 6)
    yield 'line.png', encode(picture(w=1, h=9), 'PNG')
    yield 'rgb.jpg', encode(rgb, 'JPEG', quality=90, subsampling=0)
    yield 'subsampled.jpg', encode(rgb, 'JPEG', quality=90, subsampling=2)
    yield 'progressive.jpg', encode(rgb, 'JPEG', quality=90, progressive=True)
    yield 'grey.jpg', encode(picture('L'), 'JPEG', quality=90)
    yield 'cmyk.jpg', encode(picture('CMYK'), 'JPEG', quality=95)
    for i in range(2, 9): yield f'turned{i}.jpg', turned('JPEG', i, quality=90, subsampling=0)
    yield 'lossless.webp', encode(rgb, 'WEBP', lossless=True)
    yield 'lossy.webp', encode(rgb, 'WEBP', quality=90)
    yield 'alpha.webp', encode(picture('RGBA'), 'WEBP', lossless=True, exact=True)
    yield 'animated.webp', encode(two[0], 'WEBP', save_all=True, append_images=two[1:], lossless=True, duration=50)
    yield 'turned8.webp', turned('WEBP', 8, lossless=True)
    yield 'palette.gif', encode(picture('P'), 'GIF', interlace=0)
    yield 'interlaced.gif', encode(picture('P', 11, 19), 'GIF', interlace=1)
    yield 'animated.gif', encode(two[0], 'GIF', save_all=True, append_images=two[1:], duration=50)
    yield 'part.gif', gif_part()
    yield 'large.gif', encode(picture('P', 90, 70), 'GIF', interlace=0)
    yield 'rgb.bmp', encode(rgb, 'BMP')
    yield 'palette.bmp', encode(picture('P'), 'BMP')
    yield 'one_bit.bmp', encode(picture('1'), 'BMP')
    yield 'rgba.bmp', encode(picture('RGBA'), 'BMP')
    yield '555.bmp', bmp16(rgb, False)
    yield '565.bmp', bmp16(rgb, True)
    yield 'top_down.bmp', top_down(rgb)


def pixels(name, data):
    if name == 'grey16.png': return picture('L').convert('RGB')
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert('RGB')


def main():
    lines = ['/* Written by tests/scripts/gen_image_files.py: the pixels of the files in tests/fuzz/corpus/image, by Pillow. */',
             '#ifndef IMAGE_FILES_EXPECTED_H', '#define IMAGE_FILES_EXPECTED_H', '',
             'static const struct image_expected {', '    const char *file;', '    uint32_t width, height;',
             '    uint32_t sum;        /* Adler-32 of the pixels, [height, width, 3] */',
             '    const char *pixels;  /* hexadecimal digits; NULL = exactly the checksum */', '} image_expected[] = {']
    for name, data in files():
        im = pixels(name, data)
        raw = im.tobytes()
        with open(os.path.join(FILES, name), 'wb') as f: f.write(data)
        lossy = name.endswith('.jpg') or name == 'lossy.webp'
        text = '\n'.join(f'     "{raw.hex()[i:i + 108]}"' for i in range(0, len(raw) * 2, 108)) if lossy else '     NULL'
        lines += [f'    {{"{name}", {im.width}, {im.height}, 0x{zlib.adler32(raw):08x},', text + '},']
    lines += ['};', '', '#endif']
    with open(HEADER, 'w') as f: f.write('\n'.join(lines) + '\n')


main()
