import { describe, expect, it } from 'vitest'
import { relatedCollections } from '../../../src/query/plan.ts'
import { resolveCondition } from '../../../src/query/resolve.ts'
import { env, role } from './support/access.ts'
import { catalog } from './support/catalog.ts'

const related = (collection: string, conditions: object) => {
  const access = role({ grants: { [collection]: { conditions } } })
  const rule = resolveCondition(catalog, access, collection, 'read', env)
  return rule && [...relatedCollections(rule)].sort()
}

describe('the collections that a rule reads beside its own row', () => {
  it.each([
    ['own columns', 'notes', { stars: 5, OR: [{ title: 'a' }, { NOT: { pinned: true } }] }, []],
    ['a path', 'notes', { 'owner.team.name': 'A' }, ['teams', 'users']],
    ['a path somewhere inside', 'notes', { OR: [{ stars: 1 }, { NOT: { 'comments.likes': 3 } }] }, ['comments']],
    ['a filter of related rows', 'users', { notes: { stars: 5, category: { name: 'x' } } }, ['categories', 'notes']],
    ['a junction', 'notes', { 'labels.name': 'x' }, ['labels', 'note_labels']],
    ['a relation that must be missing', 'notes', { owner: null }, ['users']],
    ['a way back to the collection itself', 'categories', { 'parent.name': 'x' }, ['categories']],
    ['a column of another row', 'notes', { title: { eq: '$COL(owner.name)' } }, ['users']],
  ])('%s', (_what, collection, conditions, expected) => {
    expect(related(collection, conditions)).toEqual(expected)
  })

  it('are none without a rule', () => {
    expect(related('users', {})).toBeUndefined()
  })
})
