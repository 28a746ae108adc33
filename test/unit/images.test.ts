import { execFileSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pino from 'pino'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseConfig } from '../../src/config/config.ts'
import {
  type FileContent,
  type ImagePool,
  type Images,
  openImages,
  openPool,
  type Transform,
} from '../../src/features/files/images/images.ts'
import { animation, bomb, contentOf, noise, plain, wav } from '../support/images.ts'
import { waitFor } from '../support/wait.ts'

const log = pino({ level: 'silent' })
let tempDir: string
let images: Images

beforeAll(async () => {
  tempDir = await mkdtemp(join(tmpdir(), 'daybook-images-'))
  const env = { ASSET_TEMP_DIR: tempDir, ASSET_MAX_INPUT_PIXELS: '4000000', ASSET_MAX_DIMENSION: '1000' }
  images = openImages(parseConfig({ SECRET_KEY: 'x'.repeat(40), ...env }), log)
})

afterAll(async () => {
  await images.close()
  await rm(tempDir, { recursive: true })
})

const nothingMade = async () => undefined

const transform = (content: FileContent, wanted: Partial<Transform> = {}) =>
  images.transform(
    content,
    { format: 'png', ...wanted },
    {
      turn: 'a',
      isMade: nothingMade,
      // It is there for as long as it is used.
      use: async (path) => {
        await delay(5)
        return readFile(path)
      },
    },
  )

/** Color of a pixel. */
async function pixel(image: Buffer, left = 0, top = 0): Promise<number[]> {
  return [...(await sharp(image).extract({ left, top, width: 1, height: 1 }).raw().toBuffer())]
}

describe('transforms', () => {
  it('makes every format, without what the file says of its camera', async () => {
    const original = await noise(400, 300)
      .withExif({ IFD0: { Make: 'ACME' } })
      .jpeg()
      .toBuffer()
    for (const format of ['jpeg', 'png', 'webp', 'avif'] as const) {
      const made = await sharp(await transform(contentOf(original), { width: 100, fit: 'cover', format })).metadata()
      expect(made).toMatchObject({ width: 100, height: 75, format: format === 'avif' ? 'heif' : format })
      expect(made.exif).toBeUndefined()
    }
  })

  it('turns images upright', async () => {
    const lying = await plain(40, 20).composite([
      { input: await plain(10, 20, 'blue').png().toBuffer(), left: 0, top: 0 },
    ])
    const original = await lying.jpeg({ quality: 100 }).withMetadata({ orientation: 6 }).toBuffer()
    const made = await transform(contentOf(original), { width: 20, height: 40, fit: 'inside' })
    expect(await sharp(made).metadata()).toMatchObject({ width: 20, height: 40 })
    const [red = 255, , blue = 0] = await pixel(made, 10, 2)
    expect(blue).toBeGreaterThan(200)
    expect(red).toBeLessThan(60)
  })

  it('puts transparency on white for JPEG and keeps it elsewhere', async () => {
    const original = await plain(20, 20, { r: 0, g: 0, b: 0, alpha: 0 }, 4).png().toBuffer()
    expect(await pixel(await transform(contentOf(original), { format: 'jpeg' }))).toEqual([255, 255, 255])
    expect(await pixel(await transform(contentOf(original), { format: 'webp' }))).toEqual([0, 0, 0, 0])
  })

  it('makes sRGB of eight bits of print colours and of sixteen bits', async () => {
    const print = await plain(40, 30).toColourspace('cmyk').jpeg().toBuffer()
    const deep = await plain(40, 30).toColourspace('rgb16').png().toBuffer()
    expect(await sharp(deep).metadata()).toMatchObject({ depth: 'ushort' })
    for (const original of [print, deep]) {
      const made = await transform(contentOf(original), { width: 20, fit: 'cover' })
      expect(await sharp(made).metadata()).toMatchObject({ space: 'srgb', depth: 'uchar', channels: 3, width: 20 })
      const [red = 0, green = 255] = await pixel(made)
      expect(red).toBeGreaterThan(180)
      expect(green).toBeLessThan(60)
    }
  })

  it('shows the first frame of an animation, however many follow', async () => {
    for (const original of [await animation('gif', 200), await animation('webp')]) {
      const made = await transform(contentOf(original))
      expect(await sharp(made).metadata()).toMatchObject({ width: 40, height: 30 })
      const [red = 0, green = 255, blue = 255] = await pixel(made)
      expect([red > 250, green < 5, blue < 5]).toEqual([true, true, true])
    }
  })

  it.each([
    ['text', () => Buffer.from('no image')],
    ['nothing', () => Buffer.alloc(0)],
    ['SVG', () => Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')],
    [
      'SVG that reads a file',
      () => Buffer.from('<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>'),
    ],
    ['HEIC', () => Buffer.from(`\0\0\0\x18ftypheic\0\0\0\0heicmif1${'\0'.repeat(200)}`, 'latin1')],
    ['half of a JPEG', async () => half(await noise(200, 200).jpeg().toBuffer())],
    ['half of a PNG', async () => half(await noise(200, 200).png().toBuffer())],
    ['half of a WebP', async () => half(await noise(200, 200).webp().toBuffer())],
    ['a PNG with too little in it', () => bomb(300, 300)],
  ])('answers %s with 422, and goes on', async (_name, make) => {
    const refused = transform(contentOf(await make()), { width: 10, fit: 'cover' })
    await expect(refused).rejects.toMatchObject({ status: 422, code: 'IMAGE_NOT_PROCESSED' })
  })

  it('decodes nothing that has more pixels than ASSET_MAX_INPUT_PIXELS', async () => {
    const refused = transform(contentOf(bomb(30_000, 30_000)), { width: 10, fit: 'cover' })
    await expect(refused).rejects.toMatchObject({ status: 400, code: 'TOO_MANY_PIXELS' })
    const small = await transform(contentOf(await plain(20, 10).png().toBuffer()), { width: 10, fit: 'cover' })
    expect(await sharp(small).metadata()).toMatchObject({ width: 10, height: 5 })
  })

  it('grows no strip without end', async () => {
    const strip = contentOf(await plain(1, 3000).png().toBuffer())
    for (const wanted of [{ width: 1000 }, { width: 1000, height: 1000, fit: 'outside' }, {}] as const) {
      const { width, height } = await sharp(await transform(strip, wanted)).metadata()
      expect(Math.max(width, height)).toBeLessThanOrEqual(1000)
    }
  })

  it('gives what has been made meanwhile', async () => {
    const read = { ...contentOf(Buffer.alloc(0)), read: () => Promise.reject(new Error('is not needed')) }
    const work = { turn: 'a', isMade: async () => 'made', use: async () => 'made anew' }
    expect(await images.transform(read, { format: 'png' }, work)).toBe('made')
  })

  it('says what the storage says when the original cannot be read', async () => {
    const content = { ...contentOf(Buffer.alloc(0)), read: () => Promise.reject(new Error('the storage is away')) }
    await expect(transform(content)).rejects.toThrow('the storage is away')
    expect(await transform(contentOf(await plain(4, 4).png().toBuffer()))).toBeInstanceOf(Buffer)
  })

  it('leaves nothing in ASSET_TEMP_DIR', async () => {
    await waitFor(async () => (await readdir(tempDir)).length === 0)
  })
})

const half = (bytes: Buffer) => bytes.subarray(0, bytes.length / 2)

describe('headers', () => {
  it('describes images as viewers show them', async () => {
    const lying = await plain(40, 20).withMetadata({ orientation: 6, density: 300 }).jpeg().toBuffer()
    expect(await images.describe(contentOf(lying, 'image/jpeg'))).toEqual({
      width: 20,
      height: 40,
      metadata: {
        ...{ format: 'jpeg', space: 'srgb', channels: 3, hasAlpha: false, depth: 'uchar' },
        ...{ density: 300, orientation: 6 },
      },
    })
    const moving = await images.describe(contentOf(await animation('gif'), 'image/gif'))
    expect(moving).toMatchObject({ width: 40, height: 30, metadata: { format: 'gif', pages: 5 } })
    const avif = await images.describe(contentOf(await plain(8, 8).avif().toBuffer(), 'image/avif'))
    expect(avif).toMatchObject({ width: 8, height: 8, metadata: { format: 'avif' } })
  })

  it('reads the header also of what is never decoded', async () =>
    expect(await images.describe(contentOf(bomb(30_000, 30_000)))).toMatchObject({ width: 30_000, height: 30_000 }))

  it('describes sound, reading little of it', async () => {
    const recording = wav(60)
    let read = 0
    const content: FileContent = {
      ...contentOf(recording, 'audio/wav'),
      read: (range) => {
        read += range!.end - range!.start + 1
        return contentOf(recording).read(range)
      },
    }
    expect(await images.describe(content)).toEqual({
      metadata: {
        ...{ container: 'WAVE', duration: 60, bitrate: 128_000 },
        streams: [{ type: 'audio', codec: 'PCM', channels: 1, sampleRate: 8000 }],
      },
    })
    expect(read).toBeLessThan(10_000)
  })

  it('says nothing of what is broken, and of other files', async () => {
    expect(await images.describe(contentOf(Buffer.from('no image'), 'image/png'))).toEqual({})
    expect(await images.describe(contentOf(Buffer.from('no film'), 'video/mp4'))).toEqual({})
    expect(await images.describe(contentOf(Buffer.from('<svg/>'), 'image/svg+xml'))).toEqual({})
    expect(await images.describe(contentOf(Buffer.from('text'), 'text/plain'))).toEqual({})
  })
})

describe('processes for images', () => {
  const pids = () =>
    execFileSync('ps', ['-o', 'pid=,args=', '--ppid', String(process.pid)], { encoding: 'utf8' })
      .split('\n')
      .filter((line) => line.includes('image-process') && line.includes('--memory-mb=77'))
      .map((line) => Number.parseInt(line, 10))

  /** A pool of its own that may take little memory. */
  async function withPool(
    memoryMb: number,
    work: (pool: ImagePool, path: (bytes: Buffer) => Promise<string>) => Promise<void>,
  ) {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-pool-'))
    const limits = { maxInputPixels: 100_000_000, maxDimension: 5000 }
    const pool = openPool({ log, limits, memoryMb, tempDir: directory })
    let n = 0
    const path = async (bytes: Buffer) => {
      n += 1
      await writeFile(join(directory, String(n)), bytes)
      return join(directory, String(n))
    }
    try {
      await work(pool, path)
    } finally {
      await pool.close()
      await rm(directory, { recursive: true })
    }
  }

  const avif = (source: string, timeLimitMs = 30_000) => ({
    ...{ turn: 'a', isQuick: false, timeLimitMs },
    prepare: async () => ({
      task: {
        kind: 'transform',
        source,
        target: `${source}.avif`,
        transform: { format: 'avif', quality: 90 },
      } as const,
    }),
  })

  it('ends what takes too long or too much memory, and does the rest', async () => {
    await withPool(150, async (pool, path) => {
      const [large, small] = [
        await path(await noise(3000, 3000).png().toBuffer()),
        await path(await plain(9, 9).png().toBuffer()),
      ]
      const slow = pool.run(avif(large, 20))
      const wide = pool.run(avif(large))
      const good = pool.run(avif(small))
      await expect(slow).rejects.toMatchObject({ fault: 'deadly' })
      await expect(wide).rejects.toMatchObject({ fault: 'deadly' })
      await expect(good).resolves.toBeUndefined()
    })
  })

  it('tells a disk that is full from an image that is broken', async () => {
    await withPool(776, async (pool, path) => {
      const source = await path(await plain(9, 9).png().toBuffer())
      const task = { kind: 'transform', source, target: '/dev/full', transform: { format: 'webp' } } as const
      const full = pool.run({ turn: 'a', isQuick: false, timeLimitMs: 30_000, prepare: async () => ({ task }) })
      await expect(full).rejects.toMatchObject({ fault: 'unwritable' })
    })
  })

  it('does once more what was running in a process that was killed', async () => {
    await withPool(777, async (pool, path) => {
      const running = pool.run(avif(await path(await noise(1200, 1200).png().toBuffer())))
      await waitFor(async () => pids().length === 1)
      const [first] = pids()
      // It is in the middle of it when its file is there.
      process.kill(first!, 'SIGKILL')
      await expect(running).resolves.toBeUndefined()
      expect(pids()).not.toContain(first)
    })
    expect(pids()).toEqual([])
  })

  it('gives nothing of the environment to them', async () => {
    await withPool(778, async (pool, path) => {
      await pool.run(avif(await path(await plain(9, 9).png().toBuffer())))
      const [pid] = pids()
      const names = (await readFile(`/proc/${pid}/environ`, 'utf8')).split('\0').map((pair) => pair.split('=')[0])
      expect(names.filter((name) => name !== '').sort()).toEqual([
        'MALLOC_ARENA_MAX',
        'NODE_CHANNEL_FD',
        'NODE_CHANNEL_SERIALIZATION_MODE',
        'TMPDIR',
      ])
    })
  })

  it('removes what killed processes have left in ASSET_TEMP_DIR', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-left-'))
    const [old, fresh, other] = ['image-old', 'image-fresh', 'something'].map((name) => join(directory, name))
    for (const file of [old!, fresh!, other!]) await writeFile(file, 'x')
    const before = new Date(Date.now() - 2 * 3_600_000)
    await utimes(old!, before, before)
    await utimes(other!, before, before)
    const own = openImages(parseConfig({ SECRET_KEY: 'x'.repeat(40), ASSET_TEMP_DIR: directory }), log)
    await own.describe(contentOf(await plain(4, 4).png().toBuffer()))
    await own.close()
    expect((await readdir(directory)).sort()).toEqual(['image-fresh', 'something'])
    await rm(directory, { recursive: true })
  })
})
