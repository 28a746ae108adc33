import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type CsvCell, readCsv, writeCsv } from '../../src/adapters/csv.ts'
import type { Field, Kind } from '../../src/catalog/catalog.ts'
import { cellValue, csvCell } from '../../src/features/data/items/file-rows.ts'
import { collectionOf } from '../support/log.ts'

const limits = { largestRecord: 1_000_000 }

async function read(text: string): Promise<CsvCell[][]> {
  const records: CsvCell[][] = []
  for await (const { cells } of readCsv(
    (async function* () {
      yield text
    })(),
    limits,
  ))
    records.push([...cells])
  return records
}

const fieldOf = (kind: Kind, more: Partial<Field> = {}): Field =>
  collectionOf('c', { f: { kind, ...more } }).fields.get('f')!
const imported = (cell: CsvCell, kind: Kind, more?: Partial<Field>) => cellValue(cell, { field: fieldOf(kind, more) })

describe('records', () => {
  it('know the line in which they begin', async () => {
    const text = 'a,b\r\n1,2\r\n\r\n"x\r\ny","z\r\n"\r\n3,4'
    const lines: [CsvCell, number][] = []
    const chunks = (async function* () {
      for (const character of text) yield character
    })()
    for await (const { cells, line } of readCsv(chunks, limits)) lines.push([cells[0]!, line])
    expect(lines).toEqual([
      ['a', 1],
      ['1', 2],
      ['x\r\ny', 4],
      ['3', 7],
    ])
  })

  it('are written by RFC 4180', () => {
    expect(writeCsv([['a', 'b,c', 'd"e', 'f\ng', null, '', ' h']])).toBe('a,"b,c","d""e","f\ng",,""," h"\r\n')
  })

  it('are read as they were written', async () => {
    const cell = fc.option(fc.string({ unit: fc.constantFrom(...'ab,"\'\n\r\t ;=é😀') }), { nil: null })
    const record = fc.array(cell, { minLength: 3, maxLength: 3 })
    await fc.assert(
      fc.asyncProperty(fc.array(record, { minLength: 1 }), async (records) => {
        // A line break that ends the first record decides what ends the others.
        const all = [['one', 'two', 'three'], ...records]
        expect(await read(writeCsv(all))).toEqual(all)
      }),
    )
  })
})

describe('an exported cell', () => {
  it.each(['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '\n=1', '＝1', '＋1', '－1', '＠x', ' =1', "'=1", "''-1"])(
    'of text never begins as a formula does: %j',
    (text) => {
      expect(csvCell(text, 'text')).toBe(`'${text}`)
      expect(csvCell(text, undefined)).toBe(`'${text}`)
      expect(imported(`'${text}`, 'text')).toBe(text)
    },
  )

  it('of a number is the number', () => {
    expect(csvCell(-5, 'integer')).toBe('-5')
    expect(csvCell('-1.50', 'decimal')).toBe('-1.50')
    expect(csvCell('-9007199254740993', 'bigint')).toBe('-9007199254740993')
    expect(csvCell(-0.5, undefined)).toBe('-0.5')
  })

  it('of anything else is JSON', () => {
    expect(csvCell(['=1'], 'array')).toBe('["=1"]')
    expect(csvCell({ id: 1 }, undefined)).toBe('{"id":1}')
    expect(csvCell('=1', 'json')).toBe('"=1"')
    expect(csvCell(true, 'boolean')).toBe('true')
    expect(csvCell(null, 'json')).toBeNull()
  })

  it('is imported as what it was', () => {
    const json = fc.jsonValue().filter((value) => value !== null && !Object.is(value, -0))
    const values: fc.Arbitrary<[Kind, unknown]>[] = [
      fc.tuple(fc.constant<Kind>('text'), fc.string({ unit: fc.constantFrom(...'\'=+-@ \t\n"[{1ab') })),
      fc.tuple(fc.constant<Kind>('json'), json),
      fc.tuple(fc.constant<Kind>('array'), fc.array(fc.option(fc.string()))),
      fc.tuple(fc.constant<Kind>('boolean'), fc.boolean()),
    ]
    fc.assert(
      fc.property(fc.oneof(...values), ([kind, value]) => {
        expect(imported(csvCell(value, kind), kind)).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })
})

describe('an imported cell', () => {
  const required = { nullable: false }
  const cases: [string, Kind, CsvCell, unknown, Partial<Field>?][] = [
    ['nothing is null', 'text', null, null],
    ['nothing is absent where null cannot be', 'text', null, undefined, required],
    ['nothing is never a tenant', 'uuid', null, undefined, { name: 'tenant_Id' }],
    ['quotes are empty text', 'text', '', ''],
    ['quotes are null where there is no empty text', 'integer', '', null],
    ['quotes are null where there is no empty text', 'enum', '', null],
    ['truth in any case', 'boolean', 'False', false],
    ['truth as a number', 'boolean', '1', true],
    ['no truth', 'boolean', 'maybe', 'maybe'],
    ['spaces around what is no text', 'integer', ' 5 ', '5'],
    ['spaces around text', 'text', ' 5 ', ' 5 '],
    ['text that looks like JSON', 'text', '[draft] {x}', '[draft] {x}'],
    ['an apostrophe of its own', 'text', "'tis", "'tis"],
    ['JSON', 'json', '{"a":[1]}', { a: [1] }],
    ['text in a column of JSON', 'json', 'plain', 'plain'],
    ['what is no list', 'array', 'a;b', 'a;b'],
  ]
  it.each(cases)('%s (%s)', (_, kind, cell, value, more) => {
    expect(imported(cell, kind, more)).toEqual(value)
  })

  it('of a relation is an id, or JSON', () => {
    const relation = { kind: 'belongsTo' } as never
    expect(cellValue('7', { relation })).toBe('7')
    expect(cellValue('{"id":7}', { relation })).toEqual({ id: 7 })
    expect(cellValue(null, { relation })).toBeNull()
    expect(cellValue(null, { relation: { kind: 'hasMany' } as never })).toBeUndefined()
  })

  it('with JSON that is too deep is refused', () => {
    expect(() => imported('['.repeat(2000), 'json')).toThrow('nested too deeply')
  })
})
