import { Type as TypeBox } from 'typebox'
import { expect, test } from 'vitest'
import { compiled, fits, problemsOf, Type } from '../../src/adapters/typebox.ts'

const short = (text: unknown) => String(text).length < 3

/** One shape of each kind, with and without options, by the builder that is given. */
function shapesBy(type: typeof Type) {
  const text = type.String({ minLength: 1, description: 'a name' })
  const members = { a: text, b: type.Optional(type.Integer()), c: type.Optional(type.Refine(text, short)) }
  return [
    text,
    type.Any(),
    type.Boolean({ description: 'on or off' }),
    type.Integer({ minimum: 1 }),
    type.Null(),
    type.Number(),
    type.Unknown({ examples: [1] }),
    ...['word', 1, true].map((value) => type.Literal(value)),
    type.Array(text, { maxItems: 3 }),
    type.Union([text, type.Null()], { refusal: 'no' }),
    type.Record(type.String(), type.Integer(), { examples: [{ a: 1 }] }),
    type.Object(members, { additionalProperties: false }),
    type.Object({}),
    type.Object({ only: type.Optional(type.Null()) }),
    type.Partial(type.Object(members, { description: 'dropped' }), { examples: [{}] }),
    type.Optional(type.Optional(text)),
    type.Refine(type.Refine(text, short), short, () => 'too long'),
    type.Unsafe({ type: 'string', description: 'as it is' }),
    type.Unsafe(type.Optional(text)),
  ]
}

/** Members in their order with their attributes, then the hidden ones by name; functions by what they say. */
function everythingOf(value: unknown): unknown {
  if (typeof value === 'function') return String(value(''))
  if (value === null || typeof value !== 'object') return value
  const members = Object.entries(Object.getOwnPropertyDescriptors(value))
  const [shown = [], hidden = []] = [true, false].map((is) => members.filter(([, { enumerable }]) => enumerable === is))
  const hiddenByName = hidden.toSorted(([a], [b]) => (a < b ? -1 : 1))
  return [...shown, ...hiddenByName].map(([name, { value: member, ...attributes }]) => [
    name,
    attributes,
    everythingOf(member),
  ])
}

test('shapes are those that TypeBox builds, hidden members included', () => {
  expect(shapesBy(Type).map(everythingOf)).toEqual(shapesBy(TypeBox as typeof Type).map(everythingOf))
})

const person = Type.Object({
  name: Type.Refine(Type.String({ format: 'unicode' }), short, () => 'is too long'),
  born: Type.Optional(Type.String({ format: 'date-time' })),
})

test.each([
  [{ name: 'Jo' }, []],
  [{ name: 'Jo', born: '2026-02-28T10:00Z' }, []],
  [{ name: 'Jo', born: '2026-02-28' }, ['/born format']],
  [{ name: '\0' }, ['/name format']],
  [{ name: 'John' }, ['/name ~refine']],
  [{}, [' required']],
])('%j is checked alike by interpretation, compiled and in words', (value, problems) => {
  expect(problemsOf(person, value).map(({ instancePath, keyword }) => `${instancePath} ${keyword}`)).toEqual(problems)
  expect(fits(person, value)).toBe(problems.length === 0)
  expect(compiled(person)(value)).toBe(problems.length === 0)
})
