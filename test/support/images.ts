import { Readable } from 'node:stream'
import { crc32, deflateSync } from 'node:zlib'
import sharp, { type Color, type Sharp } from 'sharp'
import type { FileContent } from '../../src/features/files/images/images.ts'

/* Images and recordings that tests need, made when they are needed. */

/** Noise, which no format makes small, the same for the same size. */
export function noise(width: number, height: number): Sharp {
  const bytes = Buffer.alloc(width * height * 3)
  for (let i = 0, x = 1; i < bytes.length; i += 1) {
    x = Math.imul(x, 1664525) + 1013904223
    bytes[i] = x >>> 24
  }
  return sharp(bytes, { raw: { width, height, channels: 3 } })
}

export const plain = (width: number, height: number, background: Color = 'red', channels: 3 | 4 = 3) =>
  sharp({ create: { width, height, channels, background } })

/** So many frames, the first of them red. */
export async function animation(format: 'gif' | 'webp', frames = 5): Promise<Buffer> {
  const colors = ['red', 'lime', 'blue']
  const pages = await Promise.all(
    Array.from({ length: frames }, (_, n) =>
      plain(40, 30, colors[n % 3]!)
        .png()
        .toBuffer(),
    ),
  )
  return sharp(pages, { join: { animated: true } })
    .toFormat(format)
    .toBuffer()
}

/** A PNG that says it has so many pixels, in a hundred bytes. */
export function bomb(width: number, height: number): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, 2, 0, 0, 0], 8)
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
  return Buffer.concat([
    signature,
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(Buffer.alloc(1000))),
    chunk('IEND'),
  ])
}

function chunk(type: string, data: Buffer = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([Buffer.from(type), data])
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(data.length)
  sum.writeUInt32BE(crc32(body))
  return Buffer.concat([length!, body, sum!])
}

/** So many seconds of silence. */
export function wav(seconds: number, rate = 8000): Buffer {
  const data = Buffer.alloc(seconds * rate * 2)
  const header = Buffer.alloc(44)
  header.write('RIFF', 0).toString()
  header.writeUInt32LE(36 + data.length, 4)
  header.write('WAVEfmt ', 8)
  header.writeUInt32LE(16, 16)
  header.writeUInt16LE(1, 20)
  header.writeUInt16LE(1, 22)
  header.writeUInt32LE(rate, 24)
  header.writeUInt32LE(rate * 2, 28)
  header.writeUInt16LE(2, 32)
  header.writeUInt16LE(16, 34)
  header.write('data', 36)
  header.writeUInt32LE(data.length, 40)
  return Buffer.concat([header, data])
}

/** Bytes as the content of a file. */
export const contentOf = (bytes: Buffer, type = 'image/png'): FileContent => ({
  size: bytes.length,
  type,
  read: async (range) => Readable.from([range === undefined ? bytes : bytes.subarray(range.start, range.end + 1)]),
})
