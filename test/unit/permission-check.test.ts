import { describe, expect, it } from 'vitest'
import type { StoredRule } from '../../src/access/store.ts'
import { permissionProblems } from '../../src/features/accounts/permissions/permissions.ts'
import { env } from './query/support/access.ts'
import { catalog } from './query/support/catalog.ts'

const rule: StoredRule = { fields: null, conditions: null, relConditions: null, defaultValues: null }

/** What is wrong with a permission to read notes that says this; `member: message`. */
function problems(says: Readonly<Record<string, unknown>>, acls: Readonly<Record<string, Partial<StoredRule>>> = {}) {
  const byId = new Map(Object.entries(acls).map(([id, acl]) => [id, { ...rule, ...acl }]))
  const found = permissionProblems(catalog, env, { ...rule, collection: 'notes', action: 'read', ...says }, byId)
  return found.map(({ field, message }) => `${field}: ${message}`)
}

describe('the check of a permission', () => {
  it('finds nothing wrong with a rule that resolves', () => {
    expect(problems({})).toEqual([])
    expect(problems({ fields: 'title, owner.*', conditions: { stars: { gt: 1 } } })).toEqual([])
    expect(problems({ action: 'create', defaultValues: { stars: 2 } })).toEqual([])
  })

  it('refuses members of another shape, all at once', () => {
    expect(problems({ fields: 7, conditions: 'stars', relConditions: [1], action: 'look' })).toEqual([
      'fields: must be text or a list of texts',
      'conditions: must be an object',
      'relConditions: must be an object',
      'action: must be create, read, update or delete',
    ])
  })

  it('refuses conditions and defaults that name no field, or give a value that does not fit', () => {
    expect(problems({ conditions: { nosuch: 1 } })).toEqual([expect.stringMatching(/^conditions: .*nosuch/)])
    expect(problems({ conditions: { stars: 'many' } })).toEqual([expect.stringMatching(/^conditions: /)])
    expect(problems({ defaultValues: { nosuch: 1 } })).toEqual([
      'defaultValues: nosuch is not a field that can be written',
    ])
    expect(problems({ defaultValues: { stars: 'many' } })).toEqual([expect.stringMatching(/^defaultValues: /)])
  })

  it('refuses limits on what is no relation, and follows relations', () => {
    expect(problems({ relConditions: { title: { stars: 1 } } })).toEqual([
      "relConditions: title is not a relation of 'notes'",
    ])
    expect(problems({ relConditions: { owner: { nosuch: 1 } } })).toEqual([expect.stringMatching(/^relConditions: /)])
  })

  it('refuses variables that there are not', () => {
    expect(problems({ conditions: { title: '$CURRENT_USER.nosuch' } })).toEqual([
      expect.stringMatching(/^conditions: .*not a known variable/),
    ])
  })

  it('refuses named rules that are unknown, do not fit, or stand beside a rule of its own', () => {
    expect(problems({ acl_Ids: 'a' })).toEqual(['acl_Ids: must be a list of at most 20 ids'])
    expect(problems({ acl_Ids: ['a'] })).toEqual(['acl_Ids: a is not a known rule'])
    expect(problems({ acl_Ids: ['a'], conditions: { stars: 1 } }, { a: {} })).toEqual([
      expect.stringMatching(/^acl_Ids: cannot stand beside/),
    ])
    expect(problems({ acl_Ids: ['a'] }, { a: { conditions: { stars: 1 } } })).toEqual([])
    expect(problems({ acl_Ids: ['a'] }, { a: { conditions: { nosuch: 1 } } })).toEqual([
      expect.stringMatching(/^acl_Ids: a does not fit: conditions: .*nosuch/),
    ])
  })

  it('accepts a collection that may be declared later, and refuses one that cannot', () => {
    expect(problems({ collection: 'later', conditions: { anything: 1 } })).toEqual([])
    expect(problems({ collection: 'no such name!' })).toEqual([
      'collection: is not a known collection, and cannot become one',
    ])
  })

  it('needs a collection', () => {
    for (const collection of [undefined, null])
      expect(problems({ collection, action: 'look' })).toEqual([
        'action: must be create, read, update or delete',
        'collection: is required',
      ])
  })
})
