import { describe, expect, it } from 'vitest'
import { collectionOf } from '../../console/src/app/definition.ts'
import { isEditable, isUnfinished, readFilter, writeFilter } from '../../console/src/pages/data/filter.ts'
import {
  closed,
  inWords,
  nothing,
  type RuleContent,
  together,
  uncounted,
} from '../../console/src/pages/permissions/content.ts'
import {
  actingEntries,
  entriesIn,
  furtherEntries,
  isOpen,
  withAll,
  withField,
} from '../../console/src/pages/permissions/fields.ts'
import { fieldSpecs, grantOf } from '../../src/access/access.ts'
import { compileCatalog } from '../../src/catalog/compile.ts'
import { compileGrant, grantOf as grantOfColumn } from '../../src/query/access.ts'

const definitions = [
  {
    collectionName: 'book',
    schema: {
      fields: {
        title: { type: 'String' },
        price: { type: 'Integer' },
        tenant_Id: { type: 'UUID' },
        userCreated_Id: { type: 'UUID' },
        userUpdated_Id: { type: 'UUID' },
        secret: { type: 'String', hidden: true },
        author: { relType: 'BelongsTo', target: 'person' },
      },
    },
  },
  {
    collectionName: 'person',
    schema: {
      fields: { name: { type: 'String' }, books: { relType: 'HasMany', target: 'book', foreignKey: 'author_Id' } },
    },
  },
]
const onServer = compileCatalog(definitions as never)
const inConsole = new Map(
  [...onServer.collections.values()].map(({ name, definition }) => [
    name,
    collectionOf({ collectionName: name, schema: definition.schema } as never),
  ]),
)
const book = inConsole.get('book')!
const field = (name: string) => book.fields.find((one) => one.name === name)!

describe('the fields of a rule in the console', () => {
  const stored = [
    null,
    [],
    '',
    '*',
    'title, author.name',
    ['*', '-price'],
    ['-price'],
    ['title', '-price', 'author.*'],
    '*.*',
  ]

  it('are read as the server reads them', () => {
    for (const one of stored) {
      expect(entriesIn(one)).toEqual(fieldSpecs(one) ?? [])
      const grant = compileGrant(fieldSpecs(one))
      for (const { name } of book.fields.filter(({ isHidden }) => !isHidden))
        expect([one, name, isOpen(actingEntries(one, 'read'), field(name), 'read')]).toEqual([
          one,
          name,
          grantOfColumn(grant, [name]) !== undefined,
        ])
    }
  })

  it('keep every entry when all are opened and closed again', () => {
    for (const one of stored.map((fields) => actingEntries(fields, 'read'))) {
      const others = one.filter((entry) => entry !== '*')
      expect(withAll(one, true)).toEqual(['*', ...others])
      expect(withAll(withAll(one, true), false)).toEqual(others)
    }
  })

  it('close a field of all by leaving it out, and open it again', () => {
    const all = ['*', 'author.name']
    const without = withField(all, field('price'), false, 'read')
    expect(without).toEqual(['*', 'author.name', '-price'])
    expect(withField(without, field('price'), true, 'read')).toEqual(all)
    const some = withField(['title', '-price'], field('price'), true, 'update')
    expect(some).toEqual(['title', 'price'])
    expect(withField(some, field('price'), false, 'update')).toEqual(['title'])
    expect(furtherEntries(['*', 'title', '-price', 'author.*', 'gone'], book)).toEqual(['-price', 'author.*', 'gone'])
  })

  it('open no privileged field for writers unless it is named', () => {
    for (const use of ['create', 'update'] as const) {
      for (const name of ['userCreated_Id', 'userUpdated_Id', 'tenant_Id', 'secret']) {
        expect([name, isOpen(['*'], field(name), use)]).toEqual([name, false])
        expect(isOpen(withField(['*'], field(name), true, use), field(name), use)).toBe(true)
        expect(withAll(['*'], false)).not.toContain(name)
      }
      expect(isOpen(['*'], field('title'), use)).toBe(true)
    }
    expect(isOpen(['*'], field('tenant_Id'), 'read')).toBe(true)
  })

  it('are those of the action where nothing is stored', () => {
    expect(actingEntries(null, 'read')).toEqual(['*'])
    for (const use of ['create', 'update', 'any'] as const) expect(actingEntries(null, use)).toEqual([])
    expect(actingEntries(['-price'], 'read')).toEqual(['*', '-price'])
  })
})

describe('named rules made one of its own', () => {
  const grant = (rule: RuleContent, action: string) =>
    grantOf({ ...row, ...rule, action }, { acls: new Map(), catalog: onServer })
  const row = { id: 'p', role_Id: 'r', collection: 'book', acl_Ids: null, createdAt: '', updatedAt: '' }
  const rules: Record<string, Partial<RuleContent>> = {
    all: { fields: ['*'], conditions: {} },
    cheap: { fields: 'title, price', conditions: { price: { lt: 5 } }, defaultValues: { price: 1 } },
    own: { conditions: { userCreated_Id: '$CURRENT_USER' }, defaultValues: { price: 2, title: 'x' } },
    without: { fields: ['-price'], relConditions: { author: { name: 'Ada', books: { price: 1 } } } },
    related: { fields: ['title'], relConditions: { author: { name: 'Bo', books: { price: 2 } } } },
    empty: { fields: [], relConditions: { author: {} } },
  }

  it.each(
    Object.keys(rules).flatMap((a) => ['', ...Object.keys(rules)].filter((b) => b !== a).map((b) => [a, b] as const)),
  )('%s %s give what they gave by their names', (...names) => {
    const chosen = names.filter((name) => name !== '').map((name) => ({ ...nothing, ...rules[name] }))
    const acls = new Map(chosen.map((rule, i) => [`${i}`, { id: `${i}`, name: `${i}`, system: false, ...rule }]))
    for (const action of ['read', 'create', 'update', 'delete'] as const) {
      const byName = grantOf({ ...row, ...nothing, action, acl_Ids: [...acls.keys()] }, { acls, catalog: onServer })!
      const own = grant(together(chosen, action, 'book', inConsole), action)!
      const columns = book.fields.map(({ name }) => [name, grantOfColumn(compileGrant(byName.fields), [name])])
      expect(book.fields.map(({ name }) => [name, grantOfColumn(compileGrant(own.fields), [name])])).toEqual(columns)
      const plain = ({ conditions, relConditions, defaultValues }: typeof own) => ({
        conditions: emptied(conditions),
        relConditions: emptied(relConditions),
        defaultValues: emptied(defaultValues),
      })
      expect(plain(own)).toEqual(plain(byName))
    }
  })

  /** Nothing given is an empty object or null. */
  const emptied = (value: unknown) =>
    value !== null && typeof value === 'object' && Object.keys(value).length === 0 ? null : value
})

describe('a rule that opens nothing', () => {
  it('names its key alone, to readers', () => {
    expect(closed(book, 'read')).toEqual({ ...nothing, fields: ['id'], conditions: { id: { in: [] } } })
    expect(closed(book, 'update')).toEqual({ ...nothing, conditions: { id: { in: [] } } })
  })
})

describe('effects of another rule beside rows and fields', () => {
  it('is said', () => {
    const limited = { ...nothing, relConditions: { author: { name: 'x' } }, defaultValues: { price: 1 } }
    expect(uncounted(nothing, limited)).toHaveLength(2)
    expect(uncounted(limited, { ...limited, fields: ['*'], defaultValues: { price: 2 } })).toEqual([
      'The values that items get change.',
    ])
    expect(uncounted({ ...nothing, relConditions: {} }, nothing)).toEqual([])
  })
})

describe('a rule of the console in words', () => {
  it.each([
    [{}, 'no fields named · every item'],
    [{ fields: '*', conditions: {} }, 'every field · every item'],
    [
      { fields: ['*', '-price'], conditions: { OR: [{ price: { lt: 5 } }, { NOT: { title: { isNull: true } } }] } },
      'every field without price · price is less than 5 or (not (title is missing))',
    ],
    [
      { fields: 'title', conditions: { title: '$CURRENT_USER', price: { in: [1, 2] } } },
      'title · title is $CURRENT_USER and price is one of [1,2]',
    ],
    [
      { conditions: { OR: [] }, relConditions: { author: { name: 'x' } } },
      'no fields named · {"OR":[]} · limits related items',
    ],
  ])('%j is %s', (rule, words) => {
    expect(inWords({ ...nothing, ...rule })).toBe(words)
  })
})

describe('conditions of a rule in the console', () => {
  const isRelation = (path: string) => path === 'author'

  it('keep their meaning when they are denied twice', () => {
    for (const filter of [{ NOT: { NOT: { title: 'a' } } }, { NOT: { NOT: { NOT: { title: 'a' } } } }])
      expect(writeFilter(readFilter(filter, isRelation))).toEqual(filter)
  })

  it('ask nothing where only empty groups are left', () => {
    const empty = { kind: 'group', join: 'OR', isNot: false, members: [] } as const
    expect(writeFilter({ ...empty, members: [{ ...empty, isNot: true, members: [empty] }] })).toBeUndefined()
  })

  it('are edited as a form only where the form shows all of them', () => {
    for (const filter of [{}, { title: 'a' }, { OR: [{ title: 'a' }, { NOT: { price: 1 } }] }, { NOT: [{ price: 1 }] }])
      expect([filter, isEditable(filter)]).toEqual([filter, true])
    for (const value of [
      'all',
      [],
      null,
      { author: {} },
      { OR: [] },
      { OR: 'x' },
      { AND: [null] },
      { NOT: 'x' },
      { NOT: {} },
    ])
      expect([value, isEditable(value)]).toEqual([value, false])
  })

  it('wait for what they compare with', () => {
    const condition = (operator: string, operand: unknown) =>
      isUnfinished({ kind: 'condition', path: 'title', operator, operand })
    expect([condition('iLike', ''), condition('in', []), condition('between', [1, ''])]).toEqual([true, true, true])
    expect([condition('eq', ''), condition('iLike', 'a'), condition('isNull', true), condition('gt', 0)]).toEqual([
      false,
      false,
      false,
      false,
    ])
  })
})
