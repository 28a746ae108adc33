import { expect, it } from 'vitest'
import { metadataAfter } from '../../src/features/files/files/metadata.ts'

it('metadata after a replacement is the sender’s own, with the facts about the new content', () => {
  const of = (metadata: unknown, type = 'image/png') => ({
    type,
    typeProven: true,
    metadata: metadata === undefined ? null : JSON.stringify(metadata),
  })
  const facts = { format: 'jpeg', channels: 3 }
  expect(metadataAfter(of(undefined), undefined)).toBeNull()
  expect(metadataAfter(of(undefined), facts)).toEqual(facts)
  expect(metadataAfter(of({ format: 'png', density: 72, camera: 'box' }), facts)).toEqual({ camera: 'box', ...facts })
  expect(metadataAfter(of({ format: 'png', density: 72 }), undefined)).toBeNull()
  expect(metadataAfter(of({ pages: 7 }, 'application/pdf'), undefined)).toEqual({ pages: 7 })
  expect(metadataAfter({ ...of({ pages: 7 }), typeProven: false }, undefined)).toEqual({ pages: 7 })
  expect(metadataAfter(of('text'), facts)).toBe('text')
})
