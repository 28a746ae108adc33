import { describe, expect, it } from 'vitest'
import {
  canonical,
  digestOf,
  resizeOf,
  type Transform,
  transformOf,
} from '../../src/features/files/images/transform.ts'

const read = (query: Record<string, unknown>) => transformOf(query, 5000)

describe('the transform of a query', () => {
  it.each([
    ['nothing', {}, undefined],
    ['a fit alone', { fit: 'contain', withoutEnlargement: 'true' }, undefined],
    ['what makes no sense', { width: 'wide', height: '0', quality: 'best', format: '' }, undefined],
    ['negative, broken and repeated sizes', { width: '-5', height: ['1', '2'] }, undefined],
    ['a width', { width: '800' }, { width: 800, fit: 'cover', format: 'jpeg', quality: 80 }],
    [
      'sizes beyond all bounds',
      { width: '99999', height: '1e9' },
      { width: 5000, fit: 'cover', format: 'jpeg', quality: 80 },
    ],
    ['an unknown fit', { width: '8', fit: 'stretch' }, { width: 8, fit: 'cover', format: 'jpeg', quality: 80 }],
    ['a low quality', { quality: '-1' }, { format: 'jpeg', quality: 1 }],
    ['a high quality', { quality: '400' }, { format: 'jpeg', quality: 100 }],
    ['a format', { format: 'WebP' }, { format: 'webp', quality: 80 }],
    ['jpg', { format: 'jpg' }, { format: 'jpeg', quality: 80 }],
    ['a format that runs', { format: 'svg' }, { format: 'jpeg', quality: 80 }],
    ['a name of the prototype', { format: 'constructor' }, { format: 'jpeg', quality: 80 }],
    ['PNG, which loses nothing', { format: 'png', quality: '10' }, { format: 'png' }],
    [
      'everything',
      { width: '8', height: '9', fit: 'inside', withoutEnlargement: 'true', format: 'avif', quality: '50' },
      { width: 8, height: 9, fit: 'inside', withoutEnlargement: true, format: 'avif', quality: 50 },
    ],
  ])('%s', (_name, query, expected) => expect(read(query)).toEqual(expected))

  it('has one name, however it was asked for', () => {
    const one = read({ width: '8', format: 'jpg' })!
    const same = read({ format: 'jpeg', quality: '80', width: '08', fit: 'cover', withoutEnlargement: 'no' })!
    expect(canonical(one)).toBe('width=8&fit=cover&format=jpeg&quality=80')
    expect(digestOf(same)).toBe(digestOf(one))
    expect(digestOf(one)).toMatch(/^[0-9a-f]{8}$/)
    expect(digestOf(read({ width: '9' })!)).not.toBe(digestOf(one))
  })
})

describe('sizes', () => {
  const size = (transform: Partial<Transform>, original = { width: 4000, height: 3000 }) =>
    resizeOf({ format: 'jpeg', ...transform }, original, 5000)

  it.each([
    ['one side', { width: 800 }, { width: 800, height: 600, fit: 'fill' }],
    ['the other', { height: 300 }, { width: 400, height: 300, fit: 'fill' }],
    ['both, cut', { width: 100, height: 100, fit: 'cover' }, { width: 100, height: 100, fit: 'cover' }],
    ['both, with bars', { width: 100, height: 100, fit: 'contain' }, { width: 100, height: 100, fit: 'contain' }],
    ['inside', { width: 100, height: 100, fit: 'inside' }, { width: 100, height: 75, fit: 'fill' }],
    ['outside', { width: 100, height: 100, fit: 'outside' }, { width: 133, height: 100, fit: 'fill' }],
    ['stretched', { width: 100, fit: 'fill' }, { width: 100, height: 3000, fit: 'fill' }],
    ['larger', { width: 4400 }, { width: 4400, height: 3300, fit: 'fill' }],
    ['not larger', { width: 4400, withoutEnlargement: true }, undefined],
    ['not larger, cut', { width: 4400, height: 100, fit: 'cover', withoutEnlargement: true }, undefined],
    ['none', {}, undefined],
  ] as const)('%s', (_name, transform, expected) => expect(size(transform)).toEqual(expected))

  it('stay within ASSET_MAX_DIMENSION, whatever the proportions are', () => {
    expect(size({ width: 5000 }, { width: 1, height: 60_000 })).toEqual({ width: 1, height: 5000, fit: 'fill' })
    const outside = { width: 5000, height: 5000, fit: 'outside' } as const
    expect(size(outside, { width: 60_000, height: 1 })).toEqual({ width: 5000, height: 1, fit: 'fill' })
    expect(size({}, { width: 10_000, height: 5000 })).toEqual({ width: 5000, height: 2500, fit: 'fill' })
    expect(size({ width: 5, fit: 'fill' }, { width: 5, height: 60_000 })).toEqual({
      width: 1,
      height: 5000,
      fit: 'fill',
    })
  })
})
