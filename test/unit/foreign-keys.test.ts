import { describe, expect, it } from 'vitest'
import type { CollectionDefinition, SchemaJson } from '../../src/catalog/catalog.ts'
import { compileCatalog } from '../../src/catalog/compile.ts'
import { contestsIn, decideKeys, isOpen, type StoredKey } from '../../src/features/data/items/foreign-keys.ts'

const belongsTo = (target: string, foreignKey: string, more: object = {}) => ({
  relType: 'BelongsTo',
  target,
  foreignKey,
  ...more,
})
const id = { type: 'Integer', primaryKey: true }
const any = (target: string) => belongsTo(target, 'item_id', { constraints: false, scope: { collection: target } })
const definitions: Record<string, object> = {
  a: { id, code: { type: 'String', unique: true } },
  b: { id, a: belongsTo('a', 'a_Id'), coded: belongsTo('a', 'a_code', { targetKey: 'code' }) },
  link: { id, item_id: { type: 'Integer' }, collection: { type: 'String' }, a: any('a'), b: any('b') },
}
const catalog = compileCatalog(
  Object.entries(definitions).map(
    ([collectionName, fields]): CollectionDefinition => ({ collectionName, schema: { fields } as SchemaJson }),
  ),
)
const contests = (name: string, payload: Record<string, unknown>) =>
  contestsIn({ catalog, collection: catalog.collections.get(name)! }, payload)

const stored = (key: number | null, more: Partial<StoredKey> = {}): StoredKey => ({
  key: key === null ? null : String(key),
  kind: null,
  rows: { a: { row: key === null ? null : String(key), isShown: key !== null } },
  ...more,
})

/** What sets the foreign key of each contest, whose row is written beside it, or what is wrong; in both orders of the members. */
function decided(name: string, payload: Record<string, unknown>, of?: StoredKey | 'missing') {
  const told = [payload, Object.fromEntries(Object.entries(payload).reverse())].map((members) => {
    const found = contests(name, members)
    const known = of === undefined || of === 'missing' ? of : new Map([[found[0]!.foreignKey, of]])
    const { aside, conflicts } = decideKeys(found, known)
    if (conflicts.length > 0) return conflicts.map(({ relation, message }) => `${relation.name}: ${message}`).join()
    const setting = Object.keys(payload).filter((key) => !aside.has(key))
    const beside = [...aside].flatMap(([key, what]) => (what === 'beside' ? [key] : []))
    return [setting.sort().join(), ...beside.map((key) => `beside ${key}`)].join(', ')
  })
  expect(told[0]).toBe(told[1])
  return told[0]
}

const different = 'a: a_Id and a name different rows'

describe('a foreign key that a payload names twice', () => {
  it.each([
    [{ a_Id: 2, a: { id: 1, code: 'x' } }, stored(1), 'a_Id, beside a'],
    [{ a_Id: 2, a: { id: 1 } }, stored(1), 'a_Id'],
    [{ a_Id: 2, a: 1 }, stored(1), 'a_Id'],
    [{ a_Id: null, a: { id: 1, code: 'x' } }, stored(1), 'a_Id, beside a'],
    [{ a_Id: 2, a: null }, stored(null), 'a_Id'],
    [{ a_Id: 1, a: { id: 2, code: 'x' } }, stored(1), 'a'],
    [{ a_Id: 1, a: 2 }, stored(1), 'a'],
    [{ a_Id: 1, a: null }, stored(1), 'a'],
    [{ a_Id: 1, a: { code: 'new' } }, stored(1), 'a'],
    [{ a_Id: '1', a: { id: 1, code: 'x' } }, stored(1), 'a'],
    [{ a_Id: 2, a: { id: 2, code: 'x' } }, stored(1), 'a'],
    [{ a_Id: 2, a: 3 }, stored(1), different],
    [{ a_Id: null, a: 3 }, stored(1), different],
    [{ a_Id: 2, a: null }, stored(1), different],
    [{ a_Id: 2, a: { code: 'new' } }, stored(1), different],
    [{ a_Id: 2, a: 3 }, 'missing' as const, 'a_Id'],
  ])('%j of a stored row is decided by it', (payload, of, expected) => {
    expect(decided('b', payload, of)).toBe(expected)
  })

  it('takes a relation that the caller is not shown for null', () => {
    const hidden = stored(1, { rows: { a: { row: '1', isShown: false } } })
    expect(decided('b', { a_Id: 1, a: null }, hidden)).toBe('a_Id')
    expect(decided('b', { a_Id: 2, a: null }, hidden)).toBe('a_Id')
    expect(decided('b', { a_Id: null, a: null }, hidden)).toBe('a_Id')
  })

  it.each([
    [{ a_Id: null, a: 1 }, 'a'],
    [{ a_Id: 1, a: null }, 'a_Id'],
    [{ a_Id: 1, a: { id: 1, code: 'x' } }, 'a'],
    [{ a_Id: null, a: { code: 'new' } }, 'a'],
    [{ a_Id: 1, a: 2 }, different],
    [{ a_Id: 1, a: { id: 2, code: 'x' } }, different],
    [{ a_Id: 1, a: { code: 'new' } }, different],
  ])('%j of a new row is the one that names a row', (payload, expected) => {
    expect(decided('b', payload)).toBe(expected)
  })

  it('tells rows by their primary key where the foreign key is another column', () => {
    const rows = { coded: { row: '1', isShown: true } }
    const of = stored(null, { key: 'x', rows })
    expect(decided('b', { a_code: 'y', coded: { id: 1, code: 'x' } }, of)).toBe('a_code, beside coded')
    expect(decided('b', { a_code: 'x', coded: { id: 1, code: 'renamed' } }, of)).toBe('coded')
    expect(decided('b', { a_code: 'x', coded: { id: 2, code: 'y' } }, of)).toBe('coded')
  })

  it('of a many-to-any row is decided with the collection that it points at', () => {
    const rows = { a: { row: '1', isShown: true }, b: { row: null, isShown: false } }
    const of = stored(1, { kind: 'a', rows })
    const asRead = { collection: 'a', item_id: 1, a: { id: 1, code: 'x' }, b: null }
    expect(decided('link', asRead, of)).toBe('a')
    expect(decided('link', { ...asRead, item_id: 2 }, of)).toBe('collection,item_id, beside a')
    expect(decided('link', { ...asRead, collection: 'b' }, of)).toBe('collection,item_id, beside a')
    expect(decided('link', { ...asRead, b: 1 }, of)).toBe('b, beside a')
    expect(decided('link', { ...asRead, a: null, b: 1 }, of)).toBe('b')
    expect(decided('link', { ...asRead, a: null }, of)).toBe('a')
    expect(decided('link', asRead)).toBe('a')
    expect(decided('link', { collection: 'a', a: { code: 'new' }, b: null })).toBe('a')
    expect(decided('link', { collection: 'b', a: 1 })).toBe('a: collection and a name different rows')
  })

  it('needs no decision where it is named once, or alike', () => {
    expect(contests('b', { a_Id: 1, coded: 'x' })).toEqual([])
    expect(contests('link', { collection: 'a', item_id: 1 })).toEqual([])
    expect(contests('b', { a_Id: 1, a: { id: '1', code: 'x' } }).map(isOpen)).toEqual([false])
    expect(contests('b', { a_Id: 1, a: { code: 'x' } }).map(isOpen)).toEqual([true])
  })
})
