import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { systemCollections } from '../../src/catalog/system-definitions.ts'
import { openSystemRules } from '../../src/process/system-rules.ts'

/** Items are written alike, whatever they are: the rules of system collections stand in one list. */

const folder = new URL('../../src/features/data/items/', import.meta.url)

it('names no system collection in the code of items', () => {
  const named = readdirSync(folder).filter((file) => /svc_[A-Z]/.test(readFileSync(new URL(file, folder), 'utf8')))
  expect(named).toEqual([])
})

it('has rules for system collections only', () => {
  const names = systemCollections.map(({ collectionName }) => collectionName)
  const rules = openSystemRules({} as Parameters<typeof openSystemRules>[0])
  expect(names).toEqual(expect.arrayContaining([...rules.keys()]))
})
