import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CatalogOptions, CollectionDefinition, SchemaJson } from '../../src/catalog/catalog.ts'
import { compileCatalog, definitionProblems } from '../../src/catalog/compile.ts'
import { expressionProblem } from '../../src/catalog/fields.ts'
import { shortened } from '../../src/catalog/identifiers.ts'
import { systemCollections } from '../../src/catalog/system-definitions.ts'
import { AppError } from '../../src/errors.ts'

const compile = (schema: object, options?: CatalogOptions, others: readonly CollectionDefinition[] = []) =>
  compileCatalog([...others, { collectionName: 'thing', schema: schema as SchemaJson }], options).collections.get(
    'thing',
  )!
const withField = (field: object) => compile({ fields: { a: field } }).fields.get('a')!
const refusal = (work: () => unknown): string => {
  try {
    work()
  } catch (error) {
    if (error instanceof AppError && error.status === 400) return error.message
    throw error
  }
  throw new Error('nothing was refused')
}

describe('fields', () => {
  it('get a primary key when none is declared, and keep a declared id', () => {
    expect(compile({ fields: {} }).primaryKey).toMatchObject({
      name: 'id',
      kind: 'uuid',
      default: { kind: 'uuid' },
      nullable: false,
    })
    expect(compile({ fields: { id: { type: 'Integer' } } }).primaryKey).toMatchObject({
      kind: 'integer',
      default: undefined,
    })
    expect(compile({ fields: { key: { type: 'String', primaryKey: 'true' } } }).primaryKey.name).toBe('key')
  })

  it.each([
    ['Decimal', { precision: 10, scale: 2 }, 'numeric(10,2)'],
    ['Decimal', { precision: 10 }, 'numeric(10)'],
    ['String', { stringLength: '20' }, 'varchar(20)'],
    ['Array_String', { length: 5 }, 'varchar(5)[]'],
    ['Array_Decimal', { precision: 5, scale: 1 }, 'numeric(5,1)[]'],
    ['Point', {}, 'geometry(Point,4326)'],
    ['GeometryCollection', { srid: 3857 }, 'geometry(GeometryCollection,3857)'],
    ['Geography', {}, 'geography(Point,4326)'],
    ['Vector', { dimensions: 3 }, 'vector(3)'],
    ['HalfVec', { dimensions: 4000 }, 'halfvec(4000)'],
    ['SparseVec', { dimensions: 30_000 }, 'sparsevec(30000)'],
  ])('%s %j is %s', (type, values, pgType) => {
    expect(withField({ type, values }).pgType).toBe(pgType)
  })

  it.each<[what: string, field: object, problem: string]>([
    ['unknown type', { type: 'Strange' }, 'has unknown type "Strange"'],
    ['inherited name as type', { type: 'constructor' }, 'has unknown type'],
    ['no type', {}, 'has unknown type'],
    ['array of nothing', { type: 'Array' }, 'has unknown type'],
    ['array of what there is no array of', { type: 'Array', values: { type: 'JSON' } }, 'has unknown type'],
    ['switch that is no boolean', { type: 'Text', unique: 'yes' }, 'needs true or false as unique'],
    ['negative length', { type: 'String', values: { stringLength: -1 } }, 'needs whole numbers'],
    ['vector without dimensions', { type: 'Vector' }, 'needs values.dimensions'],
    [
      'vector of too many dimensions',
      { type: 'HalfVec', values: { dimensions: 16_001 } },
      'needs whole numbers up to 16000',
    ],
    ['ENUM without values', { type: 'ENUM', values: [] }, 'needs values'],
    ['VIRTUAL without calculation', { type: 'VIRTUAL' }, 'needs calculated'],
    ['VIRTUAL of two statements', { type: 'VIRTUAL', calculated: 'a); drop table x; --' }, 'cannot be calculated'],
    ['VIRTUAL with a default', { type: 'VIRTUAL', calculated: 'a', defaultValue: 'x' }, 'cannot have a default'],
    ['JSON as primary key', { type: 'JSON', primaryKey: true }, 'cannot be the primary key'],
    ['hidden primary key', { type: 'UUID', primaryKey: true, hidden: true }, 'cannot be hidden'],
    ['rules that are no object', { type: 'Text', validate: ['isEmail'] }, 'needs an object as validate'],
    ['unknown rule', { type: 'Text', validate: { isNice: true } }, 'unknown validate rule isNice'],
    ['rule of another type', { type: 'Integer', validate: { isEmail: true } }, 'does not apply to Integer'],
    ['rule without its argument', { type: 'Integer', validate: { min: 'low' } }, 'rule min needs a number'],
    ['pattern that is none', { type: 'Text', validate: { is: '(' } }, 'rule is needs an RE2 pattern'],
    ['pattern that could hang', { type: 'Text', validate: { matches: '(?=a)' } }, 'no look-around'],
    ['pattern that is too long', { type: 'Text', validate: { is: 'a'.repeat(501) } }, 'at most 500 characters'],
  ])('refuses %s', (_what, field, problem) => {
    const message = refusal(() => withField(field))
    expect(message).toContain('Invalid schema for thing: field a ')
    expect(message).toContain(problem)
  })
})

describe('defaults', () => {
  it.each<[type: string, defaultValue: unknown, more?: object]>([
    ['Integer', '5'],
    ['Integer', 1.5],
    ['Integer', 2 ** 31],
    ['BigInt', '9223372036854775808'],
    ['BigInt', true],
    ['Decimal', 'ten'],
    ['Decimal', 1000, { values: { precision: 4, scale: 2 } }],
    ['Double', '1.5'],
    ['Boolean', 'true'],
    ['Boolean', 0],
    ['String', 5],
    ['String', 'too long', { values: { stringLength: 3 } }],
    ['String', 'x', { validate: { isEmail: true } }],
    ['UUID', 'x'],
    ['Date', '2024-02-30'],
    ['DateTime', 'yesterday'],
    ['ENUM', 'c', { values: ['a', 'b'] }],
    ['Array_Integer', [1, '2']],
    ['Array_Integer', 1],
    ['Range_Integer', { lower: 5, upper: 1 }],
    ['Range_Integer', [5, 1]],
    ['Vector', 'x', { values: { dimensions: 1 } }],
    ['Integer', { type: 'NOW' }],
    ['JSON', { type: 'UUIDV4' }],
    ['String', { type: 'AUTOINCREMENT' }],
    ['Boolean', { type: 'CURRENT_USER' }],
    ['Integer', { type: 'SUID' }],
    ['String', { type: 'STRANGE' }],
    ['String', { type: 'NOW', value: 'x', more: 1 }],
    ['Integer', { type: 'SQL' }],
    ['Integer', { type: 'SQL', value: '1; select 2' }],
  ])('%s refuses %j', (type, defaultValue, more) => {
    expect(refusal(() => withField({ type, defaultValue, ...more }))).toContain('default')
  })

  it('of SUID and TOKEN come by themselves, unless they are turned off', () => {
    expect(withField({ type: 'SUID' }).default).toEqual({ kind: 'suid' })
    expect(withField({ type: 'TOKEN' }).default).toEqual({ kind: 'token' })
    expect(withField({ type: 'TOKEN', defaultValue: null }).default).toBeUndefined()
  })

  it('of JSON may look like named ones as long as they are not', () => {
    expect(withField({ type: 'JSON', defaultValue: { type: 'line', x: 1 } }).default).toEqual({
      kind: 'literal',
      value: { type: 'line', x: 1 },
    })
    expect(withField({ type: 'JSON', defaultValue: { type: 'line' } }).default).toEqual({
      kind: 'literal',
      value: { type: 'line' },
    })
    expect(withField({ type: 'JSON', defaultValue: { value: { a: 1 } } }).default).toEqual({
      kind: 'literal',
      value: { a: 1 },
    })
  })
})

describe('SQL expressions', () => {
  it.each(['1', `'a;b--c'`, `coalesce("a b", 'it''s') || '$'`, `array[1,2][1]`, `(now() at time zone 'UTC')::date`])(
    '%s is one',
    (text) => {
      expect(expressionProblem(text)).toBeUndefined()
    },
  )

  it.each([
    '',
    ' ',
    '1; 2',
    '1 -- x',
    '1 /* x */',
    `'open`,
    `"open`,
    '(1',
    '1)',
    '1), b int default (2',
    '$$x$$',
    '$1',
    `E'\\''`,
    '([)]',
    'a'.repeat(2001),
  ])('%s is none', (text) => {
    expect(expressionProblem(text)).toEqual(expect.any(String))
  })

  it('never leaves its brackets: what is accepted has no bracket, semicolon or comment outside of quotes that could', () => {
    const piece = fc.constantFrom('(', ')', "'", '"', ';', '-', '--', '/*', '$', 'a', ' ', '[', ']', '\\')
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const text = pieces.join('')
        if (expressionProblem(text) !== undefined) return
        expect(depths(text).every((depth) => depth >= 0)).toBe(true)
        expect(depths(text).at(-1) ?? 0).toBe(0)
      }),
      { numRuns: 2000 },
    )
  })

  /** The depth of round brackets after each character, read the slow way. */
  function depths(text: string): number[] {
    let depth = 0
    let quote: string | undefined
    return [...text].map((char) => {
      if (quote !== undefined) quote = char === quote ? undefined : quote
      else if (char === "'" || char === '"') quote = char
      else if (char === '(') depth += 1
      else if (char === ')') depth -= 1
      else if (';$'.includes(char)) depth = Number.NaN
      return depth
    })
  }
})

describe('collections', () => {
  it.each<[what: string, schema: unknown, problem: string]>([
    ['no object', null, 'schema.fields must be an object'],
    ['fields that are a list', { fields: [] }, 'schema.fields must be an object'],
    ['a field that is null', { fields: { a: null } }, 'field a must be an object'],
    ['a switch that is a word', { fields: {}, paranoid: 'no' }, 'needs true or false as paranoid'],
    [
      'a sort that is text',
      { fields: { sort: { type: 'String' } }, sortEnabled: true },
      'field sort must be of type Integer',
    ],
    ['indexes that are an object', { fields: {}, indexes: {} }, 'indexes must be a list'],
    ['an index over nothing', { fields: {}, indexes: [{ fields: [] }] }, 'an index needs fields'],
    ['an index that is null', { fields: {}, indexes: [null] }, 'an index needs fields'],
    [
      'two indexes of one name',
      { fields: {}, indexes: [{ fields: ['id'] }, { fields: ['id'] }] },
      'two indexes or constraints named thing_id_idx',
    ],
    [
      'an index of an unknown type',
      { fields: {}, indexes: [{ fields: ['id'], type: 'brin' }] },
      'type must be btree, hash, gin or gist',
    ],
    [
      'constraints of an unknown type',
      { fields: {}, constraints: [{ type: 'exclude' }] },
      'constraints must be a list',
    ],
    [
      'a check that leaves its brackets',
      { fields: {}, constraints: [{ type: 'check', name: 'c', expression: 'true) , (x' }] },
      'constraint c',
    ],
    ['a junction in a word', { fields: {}, isJunction: 'true' }, 'isJunction is true or false'],
    ['realtime that is a word', { fields: {}, realtime: 'on' }, 'realtime is true, false'],
    ['realtime of unknown actions', { fields: {}, realtime: { actions: ['truncate'] } }, 'realtime is true, false'],
  ])('refuses %s', (_what, schema, problem) => {
    expect(refusal(() => compile(schema as object))).toContain(problem)
  })

  it('have constraints by name as well as in a list', () => {
    const { indexes } = compile({
      fields: { a: { type: 'Text' } },
      constraints: { one: { type: 'unique', fields: ['a', 'id'] }, two: { type: 'check', expression: `a <> ''` } },
    })
    expect(indexes).toMatchObject([{ name: 'one', unique: true }])
  })

  it('say which actions are realtime', () => {
    expect(compile({ fields: {}, realtime: { actions: ['insert'] } }).realtime).toEqual({
      enabled: true,
      actions: new Set(['insert']),
    })
    expect(compile({ fields: {}, realtime: { enabled: false } }).realtime.enabled).toBe(false)
  })
})

describe('tenants', () => {
  const schema = {
    fields: { slug: { type: 'String', unique: true, allowNull: false }, code: { type: 'String', unique: true } },
    indexes: [
      { fields: ['slug', 'code'], unique: true },
      { fields: ['code'] },
      { name: 'n', fields: ['code'], unique: true, nullsNotDistinct: true },
    ],
  }
  const thing = () => compile(schema, { multiTenant: true }, systemCollections)

  it('own a row by a column and a relation that no definition declares', () => {
    const { fields, relations } = thing()
    expect(fields.get('tenant_Id')).toMatchObject({ kind: 'uuid', nullable: true, default: { kind: 'current_tenant' } })
    expect(relations.get('tenant')).toMatchObject({ kind: 'belongsTo', target: 'svc_Tenant', onDelete: 'CASCADE' })
    expect(compile(schema, {}, systemCollections).fields.has('tenant_Id')).toBe(false)
  })

  it('stand in front of every unique index; rows without a tenant count together', () => {
    const { fields, indexes } = thing()
    expect(fields.get('slug')!.unique).toBe(false)
    expect(
      indexes.map(({ name, fields, unique, nullsNotDistinct, whereNotNull }) => [
        name,
        fields,
        unique,
        nullsNotDistinct,
        whereNotNull,
      ]),
    ).toEqual([
      ['thing_slug_code_idx', ['tenant_Id', 'slug', 'code'], true, true, ['code']],
      ['thing_code_idx', ['code'], false, false, []],
      ['n', ['tenant_Id', 'code'], true, true, []],
      ['thing_slug_key', ['tenant_Id', 'slug'], true, true, []],
      ['thing_code_key', ['tenant_Id', 'code'], true, true, ['code']],
    ])
  })

  it('are no concern of system collections', () => {
    const catalog = compileCatalog(systemCollections, { multiTenant: true })
    expect(catalog.collections.get('svc_Role')!.fields.has('tenant_Id')).toBe(false)
    expect(catalog.collections.get('svc_User')!.indexes[0]!.fields).toEqual(['email'])
  })
})

describe('definitionProblems', () => {
  it('lists every collection that is wrong, those about others once each is right by itself', () => {
    const bad = [
      { collectionName: 'one', schema: { fields: { a: { type: 'X' } } } },
      { collectionName: 'two', schema: { fields: { a: { type: 'Y' } } } },
      { collectionName: 'three', schema: { fields: { a: { relType: 'BelongsTo', target: 'nowhere' } } } },
    ]
    expect(definitionProblems(bad).map(({ collectionName }) => collectionName)).toEqual(['one', 'two'])
    expect(definitionProblems(bad.slice(2))).toEqual([
      { collectionName: 'three', error: expect.stringContaining('unknown target "nowhere"') },
    ])
    expect(definitionProblems(systemCollections)).toEqual([])
  })
})

describe('shortened names', () => {
  it('are at most 63 characters long and differ when the names do', () => {
    const [a, b] = [`${'x'.repeat(70)}a_key`, `${'x'.repeat(70)}b_key`].map(shortened)
    expect([a!.length, b!.length]).toEqual([63, 63])
    expect(a).not.toBe(b)
    expect(a).toMatch(/_key$/)
    expect(shortened('short_key')).toBe('short_key')
  })
})
