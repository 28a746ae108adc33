import { describe, expect, it } from 'vitest'
import { memberProblems, membersOf, relTypeProblem, shapes, typeProblem } from '../../src/catalog/shape.ts'
import { advicesOf, type ShapeName, typeSynonyms } from '../../src/catalog/synonyms.ts'
import { systemCollections } from '../../src/catalog/system-definitions.ts'
import { editDistance, nearName, plain } from '../../src/language/text.ts'

const names = Object.keys(shapes) as ShapeName[]

describe('near names', () => {
  it.each([
    ['allownull', 'allowNull'],
    ['allow_null', 'allowNull'],
    ['defaultvalu', 'defaultValue'],
    ['Uniqe', 'unique'],
    ['descripton', 'description'],
    ['xyz', undefined],
    ['a', undefined],
    ['', undefined],
  ])('%s is %s', (word, name) => {
    expect(nearName(word, ['allowNull', 'defaultValue', 'unique', 'description'])).toBe(name)
  })

  it('are counted by edits, as far as they matter', () => {
    expect(['abc', 'abd', 'ab', 'bc', 'cab', 'abcdef'].map((word) => editDistance('abc', word))).toEqual([
      0,
      1,
      1,
      1,
      2,
      Number.POSITIVE_INFINITY,
    ])
  })
})

describe('the closed shape', () => {
  it.each(names)('%s: no word of other products is a member or is never found', (name) => {
    const members = Object.keys(membersOf(name)).map(plain)
    for (const [word, advice] of advicesOf(name)) {
      expect([name, word, members.includes(word)]).toEqual([name, word, false])
      expect(plain(word)).toBe(word)
      expect(memberProblems([name], { [word]: true }, '')).toEqual([
        { path: word, message: expect.stringMatching(/^unknown member[:,] ./) },
      ])
      expect(advice).not.toBe('')
    }
  })

  it('describes every member', () => {
    for (const name of names)
      for (const { description } of Object.values(membersOf(name))) expect(description).toMatch(/\.$/)
  })

  it('is that of the system collections', () => {
    for (const { schema } of systemCollections) {
      expect(memberProblems(['collection'], schema, '')).toEqual([])
      for (const json of Object.values(schema.fields))
        expect(memberProblems([json.relType === undefined ? 'column' : 'relation'], json, '')).toEqual([])
      for (const json of schema.indexes ?? []) expect(memberProblems(['index'], json, '')).toEqual([])
    }
  })

  it.each([
    ['string', '"String"'],
    ['text', '"Text"'],
    ['DATETIME', '"DateTime"'],
    ['date', '"Date"'],
    ['varchar(255)', '"String"'],
    ['int', '"Integer"'],
    ['Intger', '"Integer"'],
    ['number', 'Integer, BigInt, Decimal or Double'],
    ['jsonb', '"JSONB"'],
  ])('unknown type %s: did you mean %s?', (type, meant) => {
    expect(typeProblem({ type })).toBe(`unknown type "${type}", did you mean ${meant}?`)
  })

  it('names what is right for types that are none, and for every synonym of one', () => {
    expect(typeProblem({})).toContain('is missing')
    expect(typeProblem({ target: 'x' })).toContain('relType')
    expect(typeProblem({ type: 'Zzzzz' })).toBe('unknown type "Zzzzz"')
    expect(typeProblem({ type: ['String'] })).toContain('a type is a word')
    expect(typeProblem({ type: 'Array', values: { type: 'Integer' } })).toBeUndefined()
    for (const [word] of typeSynonyms) expect(typeProblem({ type: word })).toContain('did you mean')
    expect(relTypeProblem('manytomany')).toContain('did you mean "BelongsToMany"?')
    expect(relTypeProblem('constructor')).toBe('must be BelongsTo, HasMany, HasOne or BelongsToMany')
    expect(relTypeProblem(5)).toContain('must be BelongsTo')
    expect(relTypeProblem('M2A')).toBeUndefined()
  })
})
