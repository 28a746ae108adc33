import { describe, expect, it } from 'vitest'
import { conflictText, mergeDefinitions } from '../../src/catalog/merge.ts'

const text = { type: 'String' }
const team = (fields: object, more: object = {}) => ({ ...more, fields: { name: text, ...fields } })
const merged = (before: object | null, after: object | null, now: object | null) => {
  const present = new Map(now === null ? [] : [['team', now as never]])
  const { next, conflicts } = mergeDefinitions({ before: { team: before }, after: { team: after } }, present)
  return next === undefined ? conflicts.map(conflictText) : (next.get('team') ?? null)
}

describe('a change of definitions, made on others', () => {
  it('adds, alters and removes what it concerns, and leaves the rest', () => {
    const color = { color: text }
    expect(merged(team({}), team({ motto: text }), team(color))).toEqual(team({ ...color, motto: text }))
    expect(merged(team({ motto: text }), team({}), team({ motto: text, ...color }))).toEqual(team(color))
    const long = { type: 'String', length: 500 }
    expect(merged(team({ motto: text }), team({ motto: long }), team({ motto: { ...text, unique: true } }))).toEqual(
      team({ motto: { ...long, unique: true } }),
    )
    expect(merged(team({}), team({}, { paranoid: true }), team(color, { cache: true }))).toEqual(
      team(color, { cache: true, paranoid: true }),
    )
  })

  it('keeps the order of the fields: of the change where nothing else changed, else of what is there', () => {
    const after = { fields: { motto: text, name: text } }
    expect(Object.keys((merged(team({}), after, team({})) as any).fields)).toEqual(['motto', 'name'])
    const fields = Object.keys((merged(team({}), after, team({ color: text })) as any).fields)
    expect(fields).toEqual(['name', 'color', 'motto'])
  })

  it('takes indexes and constraints one by one', () => {
    const [one, two, three] = [{ name: '2', fields: ['a'] }, { fields: ['b'] }, { name: '1', fields: ['c'] }]
    const withIndexes = (...indexes: object[]) => team({}, { indexes })
    expect(merged(team({}), withIndexes(one), withIndexes(two))).toEqual(withIndexes(two, one))
    expect(merged(withIndexes(one), team({}), withIndexes(one, two))).toEqual(withIndexes(two))
    expect(merged(withIndexes(one, two), withIndexes(one, three), withIndexes(one, two))).toEqual(
      withIndexes(one, three),
    )
    expect(merged(withIndexes(one), withIndexes({ ...one, unique: true }), withIndexes(two))).toEqual([
      'team.indexes."2" is not there, and should be {"name":"2","fields":["a"]}',
    ])
    const check = { type: 'check', name: 'c', expression: 'true' }
    expect(
      merged(team({}), team({}, { constraints: [check] }), team({}, { constraints: [{ ...check, name: 'd' }] })),
    ).toEqual(team({}, { constraints: [{ ...check, name: 'd' }, check] }))
  })

  it('leaves what is already as it is to be', () => {
    const after = team({ motto: text })
    for (const [before, now] of [
      [team({}), team({ motto: text, color: text })],
      [null, after],
    ] as const)
      expect(merged(before, after, now)).toBe(now)
    expect(merged(after, team({}), team({ color: text }))).toEqual(team({ color: text }))
    expect(merged(after, null, null)).toBeNull()
    expect(merged(after, null, after)).toBeNull()
  })

  it('names every member that is otherwise, with both values, and changes nothing', () => {
    const other = { type: 'Text' }
    expect(merged(team({}), team({ motto: text }), team({ motto: other }))).toEqual([
      'team.fields.motto.type is "Text" and not "String"',
    ])
    expect(merged(team({ motto: text }), team({}), team({ motto: { ...text, length: 9 } }))).toEqual([
      'team.fields.motto.length is 9, and should not be there',
    ])
    expect(merged(team({ motto: text }), team({ motto: other }), team({}))).toEqual([
      'team.fields.motto is not there, and should be {"type":"String"}',
    ])
    expect(merged(team({}), team({ motto: text }), null)).toEqual([
      'team is not there, and should be {"fields":{"name":{"type":"String"}}}',
    ])
    expect(merged(team({}), null, team({ color: text }))).toEqual([
      'team.fields.color is {"type":"String"}, and should not be there',
    ])
    const [conflict] = merged(team({}), team({ motto: text }), team({ motto: { type: 'x'.repeat(999) } })) as string[]
    expect(conflict!.length).toBeLessThan(300)
  })

  it('takes members of any name', () => {
    const odd = JSON.parse('{"__proto__":{"type":"String"},"toString":{"type":"String"}}')
    const next = merged({ fields: {} }, { fields: odd }, { fields: { name: text } }) as any
    expect(Object.keys(next.fields)).toEqual(['name', '__proto__', 'toString'])
  })
})
